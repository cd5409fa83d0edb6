"""D02: MLflow refused a resumed run's parameters, or lost what had changed (mlflow#7046, #7402)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from commands import (
    SMALL,
    must,
    nothing_is_left,
    running,
    runs,
    training_goes_on,
    wait_until,
    write_notes,
)

WORDS = [
    *(word for word in SMALL if word != "tracking=jsonl"),
    *("trainer.max_steps=300", "trainer.val_every=null"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a training was stopped and went on with another value of ``keep_checkpoints``."""
    folder = tmp_path_factory.mktemp("resumed")
    write_notes(folder / "notes", 30)

    trains = training_goes_on(folder, steps=1)
    with running(folder, *WORDS) as process:
        wait_until(lambda: process.poll() is not None or trains(), "training")
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 130
    must(folder, *WORDS, "trainer.keep_checkpoints=5")
    nothing_is_left(folder)
    must(folder, "sync")
    return folder


def rows(folder: Path, query: str) -> list[str]:
    database = sqlite3.connect(folder / "outputs" / "mlflow.db")
    found = database.execute(query).fetchall()
    database.close()
    return [row[0] for row in found]


def test_the_run_is_the_same(folder: Path) -> None:
    assert len(runs(folder)) == 1
    assert len(rows(folder, "SELECT run_uuid FROM runs")) == 6


def test_the_first_value_is_kept_and_the_new_one_is_a_tag(folder: Path) -> None:
    assert rows(folder, "SELECT value FROM params WHERE key = 'trainer.keep_checkpoints'") == ["2"]
    tags = rows(folder, "SELECT value FROM tags WHERE key LIKE '%trainer.keep_checkpoints%'")
    assert tags == ["5"]


def test_equal_values_logged_again_make_no_tag(folder: Path) -> None:
    assert rows(folder, "SELECT value FROM tags WHERE key LIKE '%trainer.max_steps%'") == []


def test_steps_go_on_without_duplicates(folder: Path) -> None:
    steps = rows(folder, "SELECT step FROM metrics WHERE key = 'train/loss' ORDER BY step")
    assert steps == list(range(1, 301))
