"""Progress as people see it, on a terminal and in a log."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time

import pytest

from llmexp.track.progress import Interrupted, Progress, clock, short


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_a_fast_task_prints_its_end_alone():
    stream = io.StringIO()
    with Progress(stream=stream) as progress, progress.task("pretrain", 100, "steps") as task:
        for step in range(100):
            task.update(step + 1, loss=2.5, tokens_per_second=12345.0, mfu=0.41)
    assert stream.getvalue() == "pretrain: 100/100 steps · loss 2.500 · 12.3k tokens/s · MFU 41 % · in 0 s\n"


def test_without_a_terminal_lines_come_at_the_interval_with_the_time_left():
    stream = io.StringIO()
    with Progress(stream=stream, interval=0.0) as progress, progress.task("tokenize", 4, "files") as task:
        for _ in range(4):
            task.advance()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("tokenize: 1/4 files · ")
    assert lines[0].endswith(" left")


def test_a_terminal_shows_stage_and_task_and_keeps_their_last_state():
    stream = Terminal()
    with (
        Progress(stream=stream) as progress,
        progress.stage("sft", 1, 3),
        progress.task("sft", 10, "steps") as task,
    ):
        task.update(10, loss=1.25, note="[bold]")
    text = stream.getvalue()
    assert "[2/3] sft" in text
    assert "10/10 steps" in text
    assert "loss 1.250" in text
    assert "[bold]" in text


def test_a_narrow_terminal_cuts_the_figures_and_not_the_time_left(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with Progress(stream=stream) as progress, progress.task("pretrain", 330, "steps") as task:
        task.update(1)
        time.sleep(0.2)
        task.update(104, loss=5.265, tokens_per_second=6769.0, mfu=0.68, val_loss=6.014, gradient_norm=1.25)
        time.sleep(0.6)
        live = max(re.findall(r"pretrain 104/330 steps[^\n\r]*", stream.getvalue()), key=len)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", live).rstrip()
    assert re.match(r"pretrain 104/330 steps · \d+ s left · loss 5.265", shown)
    assert len(shown) <= 80
    assert shown.endswith("…")


def test_quiet_progress_prints_nothing(capsys):
    with (
        Progress(quiet=True) as progress,
        progress.stage("sft", 0, 1),
        progress.task("x", 2, "steps") as task,
    ):
        task.advance()
        progress.line("hello")
    assert capsys.readouterr() == ("", "")


def test_the_time_left_does_not_count_what_an_earlier_process_did():
    with Progress(quiet=True) as progress, progress.task("pretrain", 1000, "steps") as task:
        task.update(900)
        assert task.left() is None
        task.update(901)
        left = task.left()
        assert left is not None
        assert left >= 0


def test_a_task_ends_cleanly_when_its_work_fails():
    stream = Terminal()
    with pytest.raises(Interrupted), Progress(stream=stream) as progress, progress.task("x", 2, "steps"):
        raise Interrupted("go on with the same command")
    assert "0/2 steps" in stream.getvalue()


def work_that_is_told(progress: Progress) -> None:
    with progress.stage("sft", 0, 1), progress.task("sft", 3, "steps") as task:
        for _ in range(3):
            task.advance()
    progress.line("the end")


def unbuffered(end: int) -> io.TextIOWrapper:
    """A stream that keeps nothing back for its close."""
    return io.TextIOWrapper(io.FileIO(end, "w"), write_through=True)


def test_a_reader_that_leaves_a_pipe_ends_no_work():
    reader, writer = os.pipe()
    with unbuffered(writer) as stream, Progress(stream=stream, interval=0.0) as progress:
        progress.line("begun")
        os.close(reader)
        work_that_is_told(progress)


def test_a_terminal_that_is_lost_ends_no_work():
    terminal, end = os.openpty()
    with unbuffered(end) as stream, Progress(stream=stream) as progress:
        progress.line("begun")
        os.close(terminal)
        work_that_is_told(progress)


def test_importing_progress_does_not_import_rich():
    code = "import sys, llmexp.track.progress; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_numbers_and_durations_are_short():
    told = [short(n) for n in (7, 950.0, 9908.15, 12_345, 4.1e6, 2.5)]
    assert told == ["7", "950", "9908", "12.3k", "4.1M", "2.50"]
    assert [clock(s) for s in (9, 185, 7385)] == ["9 s", "3:05", "2:03:05"]
