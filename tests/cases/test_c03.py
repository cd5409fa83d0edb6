"""C03: work done inside a signal handler hung, and a run stayed RUNNING (pytorch-lightning#21406, #20542).

No launcher here requeues, so the case's ``scontrol`` has nothing to be called by. Batches are read
ahead by threads, which hear no signals.
"""

from __future__ import annotations

import array
import fcntl
import json
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from commands import (
    SMALL,
    environment,
    losses,
    must,
    nothing_is_left,
    running,
    training_goes_on,
    wait_until,
    write_notes,
)

WORDS = [
    *(word for word in SMALL if word != "tracking=jsonl"),
    *("trainer.max_steps=300", "trainer.val_every=null", "trainer.checkpoint_every=null"),
]

PRINTS = """
import sys
from llmexp.launch.signals import stop_on_signals
from llmexp.track.progress import Progress
with Progress(stream=sys.stderr) as progress, stop_on_signals(progress.line) as stop:
    while not stop():
        progress.line("x" * 999)
print("stopped")
"""


def test_a_signal_that_comes_while_a_line_is_printed_to_a_full_pipe_hangs_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PRINTS],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    waiting = array.array("i", [0])

    def full() -> bool:
        before = waiting[0]
        fcntl.ioctl(process.stderr, termios.FIONREAD, waiting)
        return waiting[0] == before > 0

    wait_until(full, "a full pipe", poll=0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "stopped\n")
    assert err.count("SIGTERM: stopping at the next safe point") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a training was told to stop twice, 0.1 s apart."""
    folder = tmp_path_factory.mktemp("stopped")
    write_notes(folder / "notes", 30)

    trains = training_goes_on(folder, steps=1)
    with running(folder, *WORDS) as process:
        wait_until(lambda: process.poll() is not None or trains(), "training")
        process.terminate()
        time.sleep(0.1)
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == 130
    nothing_is_left(folder, 120)
    must(folder, "sync")
    return folder


def checkpoint(folder: Path) -> Path:
    """The one checkpoint of the folder's training."""
    (found,) = folder.glob("outputs/runs/*/*/pretrain/checkpoints/*")
    return found


def test_one_whole_checkpoint_is_written(folder: Path) -> None:
    assert (checkpoint(folder) / "manifest.json").is_file()


def test_no_run_is_left_running(folder: Path) -> None:
    with sqlite3.connect(folder / "outputs" / "mlflow.db") as database:
        states = {status for (status,) in database.execute("SELECT status FROM runs")}
    database.close()
    assert "KILLED" in states
    assert "RUNNING" not in states


def test_the_same_command_goes_on_at_the_next_step(folder: Path) -> None:
    saved = int(checkpoint(folder).name.removeprefix("step-"))
    must(folder, *WORDS)
    (journal,) = folder.glob("outputs/runs/*/*/pretrain/journal.jsonl")
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [r["fields"]["step"] for r in records if r.get("event") == "resume"] == [saved]
    assert [step for step, _ in losses(folder)] == list(range(1, 301))
