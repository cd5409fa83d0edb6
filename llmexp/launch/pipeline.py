"""One command's pipeline from its run folder to its report."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from llmexp.launch.executors import executor
from llmexp.launch.signals import stop_on_signals
from llmexp.report.data import ReportData
from llmexp.stage import reporting
from llmexp.stage.graph import Composition, locate
from llmexp.stage.runner import Runner, new_record
from llmexp.stage.runs import Unfinished, new_folder
from llmexp.store.store import Store
from llmexp.track import tracker as tracking
from llmexp.track.progress import Interrupted, Progress


def run_folder(composition: Composition, store: Store, runs: Path, explicit: Path | None) -> Path:
    """Locate all inputs, and choose the folder: an explicit one, that of unfinished work, or a new one."""
    locate(composition, store, runs)
    if explicit is not None:
        return explicit
    return _marks(store).get(_identity(composition)) or new_folder(runs, composition.title)


def _marks(store: Store) -> Unfinished:
    return Unfinished(store.root / ".unfinished")


def _identity(composition: Composition) -> str:
    """What the same command has again: its title and the fingerprints of all its stages."""
    text = "\n".join([composition.title, *(f"{n.name} {n.fingerprint}" for n in composition.nodes.values())])
    return "pipeline-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def run_pipeline(composition: Composition, store: Store, run_dir: Path, *, command: str, quiet: bool) -> int:
    """Run every stage, write the report, say what came out. Returns the exit code."""
    marks, identity = _marks(store), _identity(composition)
    marks.put(identity, run_dir)
    root = composition.root
    tracker = tracking.start(
        root.tracking,
        run_dir=run_dir,
        name=composition.title,
        stage="pipeline",
        outputs=Path(root.paths.outputs),
        mask=composition.secrets,
    )
    record = new_record(composition, command, run_dir)
    record.write(run_dir)
    with Progress(quiet=quiet) as progress, stop_on_signals(progress.line) as stop, tracker:
        tracker.params(
            {
                "overrides": composition.overrides,
                "stages": {n: s.fingerprint for n, s in record.stages.items()},
            }
        )
        runner = Runner(
            composition=composition,
            store=store,
            run_dir=run_dir,
            record=record,
            tracker=tracker,
            progress=progress,
            execute=executor(root.launcher),
            should_stop=stop,
        )
        try:
            runner.run()
        except Interrupted as error:
            raise Interrupted(f"{error}. Nothing is lost: the same command goes on.") from None
        data = reporting.report_data(run_dir, composition.root.paths.runs, composition.secrets)
        page, *figures = reporting.write(run_dir, data)
        for path in (page, *figures):
            tracker.file(path, path.name)
    marks.done(identity)  # after all else: a command killed while it reports goes on in this folder
    _say(composition, run_dir, data, page)
    return 0


def _say(composition: Composition, run_dir: Path, data: ReportData, page: Path) -> None:
    """The closing words."""
    from rich.console import Console

    from llmexp.report.summary import print_summary

    outputs, tracked = Path(composition.root.paths.outputs), composition.root.tracking
    uri = tracked.address(outputs).get("uri") if type(tracked).__name__ == "MlflowSpec" else None
    # The work is done and reported: a reader that left (`| head`), for which rich exits, is no failure of it.
    with contextlib.suppress(BrokenPipeError, SystemExit):
        print_summary(
            data,
            Console(),
            report=page,
            next_commands=reporting.next_commands(run_dir, outputs, uri),
        )
