"""The command as a person runs it: its own process, its own session, its own folder."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

import llmexp as package
from llmexp.stage.runs import pipeline_runs
from llmexp.track.runs import read_metrics

CHECKOUT = Path(package.__file__).resolve().parents[1]
SMALL = [
    *("data=text_files", "data.path=notes", "data.heldout=0.2", "tokenizer.vocab_size=300"),
    *("model=debug", "loader.seq_len=64", "trainer=debug", "tracking=jsonl"),
]
"""Five stages in a few seconds: the reader's own folder to a model too small to learn much."""


WORDS = """
the river and a stone that have light over water be with of under wind small house to open door green
field bird song night
"""


def write_notes(folder: Path, number: int) -> None:
    """Notes of a few sentences, all different."""
    chance, words = random.Random(5), WORDS.split()
    folder.mkdir(parents=True)
    for index in range(number):
        lines = [" ".join(chance.choice(words) for _ in range(14)).capitalize() + "." for _ in range(12)]
        (folder / f"{index:02}.txt").write_text("\n".join(lines) + f"\nNote {index}.\n")


THREADS = {"OMP_NUM_THREADS": "1"}


def environment(folder: Path) -> dict[str, str]:
    """The command's environment; its mark is found again in every process that comes of it."""
    return os.environ | {
        "PYTHONPATH": str(CHECKOUT),
        **THREADS,
        "LLMEXP_TEST_FOLDER": str(folder),
        "PYTHONWARNINGS": "default",
    }


PROGRAM = ("-m", "llmexp")
"""What Python runs."""


def start(
    folder: Path, *words: str, package_at: Path = CHECKOUT, program: tuple[str, str] = PROGRAM
) -> subprocess.Popen[str]:
    """Start the command in ``folder``; it leads a process group of its own, like a shell's job."""
    return subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=folder,
        env=environment(folder) | {"PYTHONPATH": str(package_at)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *words: str, package_at: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    process = start(folder, *words, package_at=package_at)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def must(folder: Path, *words: str, package_at: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    """Run the command; it must do its work."""
    done = run(folder, *words, package_at=package_at)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def wait_until(true: Callable[[], Any], what: str, seconds: float = 120.0, poll: float = 0.002) -> Any:
    """The first true value of a question that is asked again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = true()
        if found:
            return found
        time.sleep(poll)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the command alone, as the kernel does it when memory is out."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def left_behind(folder: Path) -> list[psutil.Process]:
    """Living processes that came of commands run in ``folder``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get("LLMEXP_TEST_FOLDER") == str(folder)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def nothing_is_left(folder: Path, seconds: float = 20.0) -> None:
    """Every process that came of commands run in ``folder`` ends by itself."""
    wait_until(lambda: not left_behind(folder), f"the end of {left_behind(folder)}", seconds, poll=0.1)


def runs(folder: Path) -> list[Path]:
    """Run folders, oldest first."""
    return pipeline_runs(folder / "outputs" / "runs")


def stages(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Stage name to its link in the pipeline's record."""
    links: dict[str, dict[str, Any]] = json.loads((run_dir / "pipeline.json").read_text())["stages"]
    return links


def built(run_dir: Path) -> list[str]:
    """The stages that a command ran, in their order; the others were in the store."""
    return [name for name, link in stages(run_dir).items() if not link["cached"]]


def would_run(folder: Path, *words: str, package_at: Path = CHECKOUT) -> list[str]:
    """The stages that a command would run."""
    lines = must(folder, *words, "launcher.dry_run=true", package_at=package_at).stdout.splitlines()
    return [line.split()[0] for line in lines if line.endswith("would run")]


def losses(folder: Path) -> list[tuple[int, float]]:
    """(step, training loss) of the one pretraining run in ``folder``, each step once."""
    (journal,) = (folder / "outputs" / "runs").glob("*/*/pretrain/journal.jsonl")
    series = read_metrics(journal.parent)["train/loss"]
    assert len(set(series.steps)) == len(series.steps), "a step was journaled twice"
    return list(zip(series.steps, series.values, strict=True))


def training_goes_on(folder: Path, steps: int = 20) -> Callable[[], bool]:
    """A question: whether a training that was not there when it was made has logged some steps."""
    before = set(folder.glob("outputs/runs/*/*"))

    def asked() -> bool:
        new = set(folder.glob("outputs/runs/*/*")) - before
        journals = [run / "pretrain" / "journal.jsonl" for run in new]
        return any(j.exists() and j.read_bytes().count(b'"train/loss"') >= steps for j in journals)

    return asked


def weights_hash(folder: Path) -> str:
    """The hash of the final weights, from the model's manifest."""
    (manifest,) = (folder / "outputs" / "store" / "model").glob("*/manifest.json")
    return str(json.loads(manifest.read_text())["summary"]["weights_hash"])


def artifacts(folder: Path, kind: str) -> list[Path]:
    """Folders of a kind's artifacts."""
    return sorted(path.parent for path in (folder / "outputs" / "store" / kind).glob("*/manifest.json"))


@contextlib.contextmanager
def running(folder: Path, *words: str, program: tuple[str, str] = PROGRAM) -> Iterator[subprocess.Popen[str]]:
    """A started command that is dead, with all that came of it, when the test is over."""
    process = start(folder, *words, program=program)
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)
        for one in left_behind(folder):
            with contextlib.suppress(psutil.Error):
                one.kill()
