"""kill_and_resume.py DIR KILLS SEED: trains DIR/whole in one go and DIR/killed with random SIGKILLs.

Every other kill falls while a checkpoint is being written. Children are forked after the
imports, which take longer than the training.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import tiny_training as tiny

from llmexp.train import lightning, loop
from llmexp.train.config import CosineSpec, MuonSpec

STEPS = 40
IMPORTED = (lightning, loop)
"""Slow to import, so before the first fork."""


def train_once(run_dir: Path) -> None:
    """One incarnation of the run."""
    held_out = tiny.Sequences(rows=3, cuts=1).batch(10_000)

    def validate(model: object) -> dict[str, float]:
        loss = tiny.CrossEntropy()(model, held_out)  # type: ignore[arg-type]
        return {"val/loss": float(loss.total) / int(held_out.mask.sum())}

    result = tiny.train(
        run_dir,
        model=tiny.model(dropout=0.1),
        trainer=tiny.trainer(max_steps=STEPS, checkpoint_every=5, val_every=7, log_every=1),
        optimizer=MuonSpec(),
        scheduler=CosineSpec(warmup_steps=3),
        tracker=tiny.InJournal(run_dir / "journal.jsonl"),
        validate=validate,
    )
    (run_dir / "hash").write_text(result.weights_hash)


def wait_for_the_moment(run_dir: Path, chance: random.Random, while_writing: bool) -> None:
    """Return some time into the child's life, or as soon as it is writing a checkpoint."""
    journal = run_dir / "journal.jsonl"
    size = journal.stat().st_size if journal.exists() else 0
    more = size + chance.randrange(1, 2500)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not (journal.exists() and journal.stat().st_size >= more):
        time.sleep(0.0005)
    while while_writing and time.monotonic() < deadline:
        if any((run_dir / "checkpoints").glob(".unfinished-*")):
            time.sleep(chance.uniform(0, 0.002))
            return


def incarnations(run_dir: Path, kills: int, seed: int) -> None:
    """Train until an incarnation ends by itself."""
    chance = random.Random(seed)
    run_dir.mkdir(parents=True, exist_ok=True)
    while True:
        child = os.fork()
        if child == 0:
            train_once(run_dir)
            os._exit(0)
        if kills > 0:
            wait_for_the_moment(run_dir, chance, while_writing=kills % 2 == 0)
            os.kill(child, signal.SIGKILL)
            kills -= 1
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                raise SystemExit("an incarnation failed")
            return


if __name__ == "__main__":
    tiny.torch.set_num_threads(1)
    incarnations(Path(sys.argv[1]) / "whole", 0, 0)
    incarnations(Path(sys.argv[1]) / "killed", int(sys.argv[2]), int(sys.argv[3]))
