"""H04: a mistyped path trained from scratch, "last" was an older file (pytorch-lightning#7072, #5030)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from llmexp.train.checkpoint import Checkpoints
from llmexp.train.config import TrainerSpec
from llmexp.train.errors import ResumeMistake
from llmexp.train.resume import find_checkpoint

MISSING = "/no/such/step-20"


def test_a_missing_path_is_a_mistake_before_anything_is_made() -> None:
    (mistake,) = TrainerSpec(max_steps=1, resume=MISSING).check()
    assert (mistake.path, MISSING in mistake.problem) == ("resume", True)
    with pytest.raises(ResumeMistake, match=MISSING) as caught:
        find_checkpoint(Path(MISSING))
    assert caught.value.exit_code == 2


def test_the_highest_step_is_taken_whatever_was_touched_last(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (30, 10):
        checkpoints.save(step, {"model": {"w": torch.zeros(1)}}, {})
    os.utime(tmp_path / "checkpoints" / "step-00000010")
    assert find_checkpoint(tmp_path).step == 30


def test_a_folder_that_holds_no_checkpoint_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ResumeMistake, match="neither a checkpoint nor the folder of a run"):
        find_checkpoint(tmp_path)
