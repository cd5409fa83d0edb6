"""H01: a checkpoint half written by a killed process was taken for the newest (pytorch-lightning#688)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from llmexp.train.checkpoint import Checkpoints
from llmexp.train.errors import BrokenCheckpoint
from llmexp.train.resume import find_checkpoint

INPUTS = Path(__file__).parent / "inputs" / "h01_ckpts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The case's tensors: whole at step 10 with its mark, in our format; half and unmarked at step 20."""
    weights = load_file(INPUTS / "step-10" / "weights.safetensors")
    Checkpoints(tmp_path, keep=2).save(10, {"model": weights}, {})
    shutil.copytree(INPUTS / "step-20", tmp_path / "step-00000020")
    return tmp_path


def test_the_case_s_newer_file_is_indeed_half() -> None:
    with pytest.raises(Exception, match=r"[Ii]ncomplete|header|offset"):
        safe_open(INPUTS / "step-20" / "weights.safetensors", framework="pt").keys()


def test_the_newest_whole_one_is_taken_the_half_one_named_and_kept(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = Checkpoints(folder, keep=2).newest()
    assert newest is not None
    assert newest.step == 10
    assert "step-00000020" in caplog.text
    half = folder / "step-00000020" / "weights.safetensors"
    assert half.read_bytes() == (INPUTS / "step-20" / "weights.safetensors").read_bytes()


def test_the_half_one_given_by_path_is_refused_with_the_file_s_name() -> None:
    with pytest.raises(BrokenCheckpoint, match=r"step-20/manifest\.json") as caught:
        find_checkpoint(INPUTS / "step-20")
    assert caught.value.exit_code == 2
