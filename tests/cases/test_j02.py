"""J02: truncated completions leave the sum but not the divisor; a second end token counts as cut off."""

import json
from pathlib import Path

import pytest
import torch

from llmexp.data.batch import Batch
from llmexp.model.config import ModelSpec
from llmexp.objective.grpo import GRPO
from llmexp.rollout.engine import Completions, ended
from llmexp.rollout.source import rollout_metrics, to_batch

CASE = json.loads((Path(__file__).parent / "inputs/j02_completions.json").read_text())
MASKING = {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.0, "scale_by_std": True, "temperature": 1.0}
PADS = [CASE["pad_id"], *CASE["eos_ids"]]


def completions(rows: list[list[int]], pad: int) -> Completions:
    """Rows as the file has them, padded with ``pad``."""
    ids = torch.tensor([[pad if token == CASE["pad_id"] else token for token in row] for row in rows])
    return Completions(ids, torch.zeros(ids.shape), *ended(ids, torch.tensor(CASE["eos_ids"])))


def batch_of(done: Completions) -> Batch:
    batch = to_batch([[1]] * len(done.ids), done)
    batch.extras["advantages"] = torch.ones(len(done.ids))
    return batch


@pytest.mark.parametrize("pad", PADS)
def test_mask_divisor_and_statistics_equal_the_file_whatever_pads(pad: int) -> None:
    objective, done = GRPO(**MASKING, mask_truncated=True), completions(CASE["rows"], pad)
    batch = batch_of(done)
    assert objective.counted(batch).int().tolist() == CASE["mask"]
    assert objective.count(batch).item() == CASE["loss_denominator"]
    figures = rollout_metrics(done, torch.zeros(1, 3))
    assert figures["rl/truncated"] == pytest.approx(CASE["clipped_ratio"], abs=1e-4)
    assert figures["rl/length"] == CASE["mean_length_logged"]


def test_the_end_token_itself_is_trained() -> None:
    batch = batch_of(completions(CASE["rows"], CASE["pad_id"]))
    assert [batch.targets[row][batch.mask[row]].tolist()[-1] for row in range(2)] == [7, 2]


@pytest.mark.parametrize("pad", PADS)
def test_when_all_are_truncated_loss_and_gradients_are_zero(pad: int) -> None:
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "ffn_dim": 32, "vocab_size": 12, "max_seq_len": 32}
    model = ModelSpec(**sizes).build(seed=0)
    objective, batch = GRPO(**MASKING, mask_truncated=True), batch_of(completions(CASE["rows"][2:] * 3, pad))
    loss = objective(model, batch)
    loss.total.backward()
    assert (objective.count(batch).item(), loss.total.item()) == (0, 0.0)
    assert all(bool((p.grad == 0).all()) for p in model.parameters() if p.grad is not None)
