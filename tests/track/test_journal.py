"""The journal keeps every first value, whatever ends the process that writes it."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.track.journal import Journal, StepSet, last_event, read_records


def logged(path: Path, key: str) -> list[tuple[int, float]]:
    return [(r["s"], float(r["m"][key])) for r, _ in read_records(path) if key in r.get("m", {})]


def test_the_first_value_of_a_key_and_step_stands_also_after_reopening(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    first.metrics({"a": 1.0}, 1)
    first.metrics({"a": 2.0, "b": 5.0}, 1)
    first.close()
    again = Journal(path)
    again.metrics({"a": 3.0}, 1)
    again.metrics({"a": 4.0}, 2)
    again.close()
    assert logged(path, "a") == [(1, 1.0), (2, 4.0)]
    assert logged(path, "b") == [(1, 5.0)]


def test_replayed_steps_after_a_rollback_go_to_the_retry_key(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for step in range(6):
        journal.metrics({"a": float(step)}, step)
    journal.roll_back(3)
    for step in (4, 5, 6):
        journal.metrics({"a": 10.0 + step}, step)
    journal.close()
    resumed = Journal(path)  # killed and resumed from step 4: the retry is replayed and not journaled again
    for step in (5, 6, 7):
        resumed.metrics({"a": 20.0 + step}, step)
    resumed.roll_back(5)
    resumed.metrics({"a": 36.0}, 6)
    resumed.close()
    assert logged(path, "a") == [*((i, float(i)) for i in range(6)), (6, 16.0), (7, 27.0)]
    assert logged(path, "a@retry1") == [(4, 14.0), (5, 15.0)]
    assert logged(path, "a@retry2") == [(6, 36.0)]


def test_a_rollback_leaves_system_samples_alone(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.metrics({"a": 1.0}, 9)
    journal.roll_back(0)
    journal.metrics({"system/cpu": 1.0}, journal.next_sample())
    assert journal.next_sample() == 1
    journal.close()
    assert logged(journal.path, "system/cpu") == [(0, 1.0)]


def test_non_finite_values_are_kept(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.metrics({"a": math.nan, "b": math.inf, "c": -math.inf}, 0)
    journal.close()
    (record, _) = next(read_records(journal.path))
    values = [float(record["m"][key]) for key in "abc"]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 200))
def test_a_journal_cut_anywhere_is_continued_after_its_last_whole_line(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "journal.jsonl"
    journal = Journal(path)
    for step in range(8):
        journal.metrics({"a": float(step)}, step)
    journal.close()
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    resumed = Journal(path)
    for step in range(8):
        resumed.metrics({"a": float(step)}, step)
    resumed.close()
    assert logged(path, "a") == [(i, float(i)) for i in range(8)]
    assert path.read_bytes().count(b"\n") == 8


def test_a_damaged_line_within_the_journal_is_skipped_with_a_warning(tmp_path, caplog):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t":1,"s":0,"m":{"a":1.0}}\n\x00\x00\x00\n{"t":1,"s":1,"m":{"a":2.0}}\n')
    assert logged(path, "a") == [(0, 1.0), (1, 2.0)]
    assert "damaged" in caplog.text


def test_a_killed_writer_loses_no_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    code = (
        "import os, sys; from pathlib import Path; from llmexp.track.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for step in range(1000): journal.metrics({'a': float(step)}, step)\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert logged(path, "a") == [(i, float(i)) for i in range(1000)]


def test_a_full_disk_is_warned_about_once_and_what_was_logged_meanwhile_is_written_later(tmp_path, caplog):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # writes beyond fail as on a full disk
    try:
        for step in range(100):
            journal.metrics({"a": float(step)}, step)
        journal.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(logged(path, "a")) < 100
    assert caplog.text.count("cannot be written") == 1
    journal.close()
    assert logged(path, "a") == [(i, float(i)) for i in range(100)]


def test_logging_a_step_takes_far_less_than_a_millisecond(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    values = {f"train/key{i}": i / 3 for i in range(8)}
    begun = time.perf_counter()
    for step in range(5000):
        journal.metrics(values, step)
    seconds = (time.perf_counter() - begun) / 5000
    journal.close()
    assert seconds < 5e-4


@given(steps=st.lists(st.integers(0, 10**12)))
def test_a_step_set_holds_exactly_what_was_added(steps):
    kept = StepSet()
    for step in steps:
        kept.add(step)
    assert all(step in kept for step in steps)
    assert all((step + 1 in kept) == (step + 1 in set(steps)) for step in steps)


@pytest.mark.parametrize(
    "tail,kind",
    [
        (b'{"t":1,"event":"end","fields":{}}\n', "end"),
        (b'{"t":1,"event":"end"', ""),
        (b'{"t":1,"s":0,"m":{}}\n', ""),
    ],
)
def test_the_last_event_is_told_only_from_a_whole_last_line(tmp_path, tail, kind):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t":1,"event":"start","fields":{}}\n' + tail)
    assert last_event(path) == kind
