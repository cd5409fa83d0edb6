"""One command's pipeline from its run folder to its report."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from filelock import SoftFileLease, Timeout

from llmexp.config.mistakes import UserError
from llmexp.launch.executors import executor
from llmexp.launch.signals import stop_on_signals
from llmexp.report.data import ReportData
from llmexp.stage import reporting
from llmexp.stage.graph import Composition
from llmexp.stage.locate import locate
from llmexp.stage.runner import Runner, new_record
from llmexp.stage.runs import (
    FOLDER_LEASE_SECONDS,
    PIPELINE,
    PipelineRecord,
    Unfinished,
    folder_lease,
    new_folder,
)
from llmexp.store.store import Store
from llmexp.track import tracker as tracking
from llmexp.track.progress import Interrupted, Progress


@contextlib.contextmanager
def run_folder(composition: Composition, store: Store, runs: Path, explicit: Path | None) -> Iterator[Path]:
    """Locate all inputs, choose the folder, and keep other commands out of it.

    It is an explicit one, that of unfinished work, or a new one.

    Raises:
        UserError: another command works in the explicit folder, or it holds other work; nothing may be
            written where ``paths`` says.
    """
    if closed := composition.root.paths.closed():
        raise UserError(closed)
    locate(composition, store, runs)
    lease = None if explicit else _lease_on_unfinished(_marks(store), _identity(composition))
    lease = lease or _lease_on(explicit or new_folder(runs, composition.title))
    try:
        folder = Path(lease.lock_file).parent
        _refuse_other_work(folder, composition)
        yield folder
    finally:
        lease.release()


def _refuse_other_work(folder: Path, composition: Composition) -> None:
    """A stage goes on from the checkpoints in its folder: none of another artifact may lie there."""
    if not (folder / PIPELINE).is_file():
        return
    there = {name: link.fingerprint for name, link in PipelineRecord.read(folder).stages.items()}
    if there != {name: node.fingerprint for name, node in composition.nodes.items()}:
        raise UserError(f"{folder} holds the run of another composition: give hydra.run.dir another folder")


def _lease_on(folder: Path) -> SoftFileLease:
    folder.mkdir(parents=True, exist_ok=True)
    lease = folder_lease(folder)
    try:
        lease.acquire(timeout=FOLDER_LEASE_SECONDS + 1)  # in which one of a dead machine runs out
    except Timeout:
        raise UserError(f"another command works in {folder}: wait for its end, or name another") from None
    return lease


def _lease_on_unfinished(marks: Unfinished, identity: str) -> SoftFileLease | None:
    """The lease on the folder of unfinished work; None where there is none, or another command went on."""
    folder = marks.get(identity)
    if folder is None:
        return None
    lease = folder_lease(folder)
    # Whoever else has taken it says RUNNING at once, and from then on it is not unfinished; a holder that
    # died on another machine says nothing, until its lease runs out. What is asked last counts: between
    # question and lease, another may have gone on and come to its end.
    while marks.get(identity) == folder:
        if lease.is_locked:
            return lease
        with contextlib.suppress(Timeout):
            lease.acquire(timeout=0.2)
    lease.release()
    return None


def _marks(store: Store) -> Unfinished:
    return Unfinished(store.root)


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
        undelivered = tracker.close()
    if undelivered:
        data.notes.append(undelivered)
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
