"""The command is killed again and again, all through its life; what comes out is as if it never was.

Each kill waits for a moment that files tell of (a stage's folder, a half-written checkpoint, a model on
its way into the store), then for a random time, and is SIGKILL to the command's process alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import (
    SMALL,
    artifacts,
    built,
    kill,
    losses,
    must,
    nothing_is_left,
    runs,
    start,
    wait_until,
    weights_hash,
    write_notes,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS = 24
STAGES = ["collect", "curate", "bpe", "tokens", "pretrain"]
WORDS = [
    *(word for word in SMALL if word != "tracking=jsonl"),
    "tracking=mlflow",
    f"trainer.max_steps={STEPS}",
    "trainer.checkpoint_every=3",
    "trainer.val_every=5",
]
SEED = int(os.environ.get("LLMEXP_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


@dataclass
class Life:
    """A command that is killed and started again."""

    folder: Path
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    kills: list[str] = field(default_factory=list)
    """The moments at which a living command was killed."""
    in_a_write: int = 0
    """Kills that left something half written."""

    def seen(self, pattern: str) -> set[tuple[str, int]]:
        """What matches below outputs/, with the time of its last change."""
        found = set()
        for path in (self.folder / "outputs").glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                found.add((str(path), path.stat().st_mtime_ns))
        return found

    def appears(self, pattern: str) -> Callable[[], bool]:
        """A question: whether something matches that did not when the question was made."""
        before = self.seen(pattern)
        return lambda: bool(self.seen(pattern) - before)

    def half_written(self) -> set[tuple[str, int]]:
        """Half-written artifacts and checkpoints."""
        return {
            found
            for pattern in ("store/*/.*.*/*", "runs/*/*/*/checkpoints/.unfinished-*")
            for found in self.seen(pattern)
            if ".trash." not in found[0]
        }

    def kill_at(self, moment: str, reached: Callable[[], bool], at_most: float) -> None:
        """Start the command, wait for the moment and a random time up to ``at_most`` seconds, kill it."""
        before = self.half_written()
        process = start(self.folder, *WORDS)
        wait_until(lambda: reached() or process.poll() is not None, moment, poll=0.0003)
        time.sleep(self.chance.uniform(0, at_most))
        hit = process.poll() is None
        kill(process)
        half = self.half_written() - before
        if hit:
            self.kills.append(moment)
            self.in_a_write += bool(half)
            print(f"killed at: {moment}; half written: {sorted(Path(path).name for path, _ in half)}")
        else:
            assert process.returncode == 0, f"{moment}: the command ended with {process.returncode}"
        checked = must(self.folder, "store", "verify")
        assert "damaged" not in checked.stdout.lower().replace("0 damaged", "")

    def journal_grows(self, more: int) -> Callable[[], bool]:
        """A question: whether the training journal has grown by so many bytes since the question was made."""

        def size() -> int:
            return sum(f.stat().st_size for f in self.folder.glob("outputs/runs/*/*/pretrain/journal.jsonl"))

        target = size() + more
        return lambda: size() >= target


def moments(life: Life) -> None:
    """Twelve kills, in the order of the command's life."""
    life.kill_at("start", life.appears("runs/*/*"), 0.3)
    life.kill_at("collect writes", life.appears("store/corpus/.*.*/*"), 0.005)
    life.kill_at("curate", life.appears("runs/*/*/curate/run.json"), 0.2)
    life.kill_at("curate writes", life.appears("store/corpus/.*.*/*"), 0.01)
    life.kill_at("tokenizer", life.appears("runs/*/*/bpe/run.json"), 0.05)
    life.kill_at("tokenize writes", life.appears("store/shards/.*.*/*"), 0.01)
    life.kill_at("training", life.journal_grows(life.chance.randrange(2000, 6000)), 0.05)
    unfinished = "runs/*/*/pretrain/checkpoints/.unfinished-step-*"
    life.kill_at("checkpoint write", life.appears(unfinished), 0.002)
    life.kill_at("optimizer state", life.appears(f"{unfinished}/optimizer.safetensors"), 0.002)
    life.kill_at("rename", life.appears("runs/*/*/pretrain/checkpoints/step-*"), 0.001)
    life.kill_at("model writes", life.appears("store/model/.*.*/model.safetensors"), 0.003)
    life.kill_at("delivery", life.appears("store/model/*/manifest.json"), 0.5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the command ran undisturbed."""
    folder = tmp_path_factory.mktemp("whole")
    write_notes(folder / "notes", 60)
    must(folder, *WORDS)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A folder in which the command was killed at every turn, and then let finish."""
    print(f"LLMEXP_TEST_SEED={SEED}")
    life = Life(tmp_path_factory.mktemp("killed"))
    write_notes(life.folder / "notes", 60)
    moments(life)
    must(life.folder, *WORDS)
    nothing_is_left(life.folder)
    return life


def database(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "outputs" / "mlflow.db")


def test_ten_kills_fell_and_three_of_them_within_a_write(killed):
    assert len(killed.kills) >= 10, killed.kills
    assert killed.in_a_write >= 3


def test_the_loss_of_every_step_is_that_of_an_undisturbed_run(killed, whole):
    got, want = losses(killed.folder), losses(whole)
    assert [step for step, _ in want] == list(range(1, STEPS + 1))
    assert got == want


def test_the_final_weights_are_those_of_an_undisturbed_run(killed, whole):
    assert weights_hash(killed.folder) == weights_hash(whole)


@pytest.mark.parametrize("kind", ["corpus", "tokenizer", "shards", "model"])
def test_artifacts_are_file_by_file_those_of_an_undisturbed_run(killed, whole, kind):
    def files(folder: Path) -> dict[str, object]:
        return {
            a.name: json.loads((a / "manifest.json").read_text())["files"] for a in artifacts(folder, kind)
        }

    assert files(killed.folder) == files(whole)


def test_nothing_half_written_stays(killed):
    assert killed.half_written() == set()


def test_each_stage_and_the_pipeline_have_one_mlflow_run(killed):
    with database(killed.folder) as mlflow:
        rows = mlflow.execute(
            "SELECT r.name, r.status, t.value IS NULL FROM runs r "
            "LEFT JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = 'mlflow.parentRunId'"
        ).fetchall()
    mlflow.close()
    assert sorted(name for name, _, whole in rows if not whole) == sorted(STAGES)
    assert [status for _, status, whole in rows if whole] == ["FINISHED"]
    assert {status for _, status, _ in rows} == {"FINISHED"}


def test_mlflow_has_each_step_once(killed):
    with database(killed.folder) as mlflow:
        rows = mlflow.execute("SELECT step FROM metrics WHERE key = 'train/loss' ORDER BY step").fetchall()
    mlflow.close()
    assert [step for (step,) in rows] == list(range(1, STEPS + 1))


def test_the_command_went_on_in_one_run_folder(killed):
    # The kill right at the start may leave a folder in which nothing was begun.
    (folder,) = [run for run in runs(killed.folder) if any(run.glob("*/run.json"))]
    assert built(folder) == STAGES
    assert (folder / "report.html").is_file()
