"""D04: every rank opened a run of its own, or ranks wrote to different folders (mlflow#11782, #5817).

Jobs of a sweep are runs of their own, in folders of the sweep; it has no run above them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import SMALL, must, nothing_is_left, runs, write_notes

WORDS = [
    *(word for word in SMALL if word != "tracking=jsonl"),
    *("launcher=processes", "launcher.gpus_per_node=2", "parallel=ddp", "parallel.dp_replicate=2"),
]
COLLECT = ["stage=collect", "data=text_files", "data.path=notes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two ranks trained together."""
    folder = tmp_path_factory.mktemp("ranks")
    write_notes(folder / "notes", 30)
    must(folder, *WORDS)
    nothing_is_left(folder, 120)
    must(folder, "sync")
    return folder


@pytest.fixture
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    """Its MLflow database."""
    opened = sqlite3.connect(folder / "outputs" / "mlflow.db")
    yield opened
    opened.close()


def test_two_ranks_are_one_run_in_one_folder(folder: Path, database: sqlite3.Connection) -> None:
    (run_dir,) = runs(folder)
    made = [json.loads(path.read_text()) for path in [run_dir / "run.json", *run_dir.glob("*/run.json")]]
    names = sorted(name for (name,) in database.execute("SELECT name FROM runs"))
    assert names == sorted(run["name"] for run in made)
    steps = [step for (step,) in database.execute("SELECT step FROM metrics WHERE key = 'train/loss'")]
    assert sorted(steps) == list(range(1, 9))


def test_every_stage_names_the_one_pipeline_as_its_parent(database: sqlite3.Connection) -> None:
    tags = database.execute("SELECT value FROM tags WHERE key = 'mlflow.parentRunId'").fetchall()
    every = {run for (run,) in database.execute("SELECT run_uuid FROM runs")}
    (parent,) = set(tags)
    assert parent[0] in every
    assert len(tags) == len(every) - 1


def test_two_commands_at_once_make_the_experiment_together(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes", 20)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda share: must(tmp_path, *COLLECT, f"data.heldout={share}"), (0.1, 0.2)))
    nothing_is_left(tmp_path, 120)
    must(tmp_path, "sync")
    with sqlite3.connect(tmp_path / "outputs" / "mlflow.db") as database:
        rows = database.execute("SELECT experiment_id, COUNT(*) FROM runs GROUP BY experiment_id").fetchall()
    database.close()
    assert [number for _, number in rows] == [4]
