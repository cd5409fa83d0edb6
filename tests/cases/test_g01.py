"""G01: micro-batches were averaged one by one and then again (transformers#34191, torchtune#1875)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from llmexp.data.batch import Batch
from llmexp.model.config import ModelSpec
from llmexp.model.decoder import Decoder
from llmexp.objective.base import Loss, Objective
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.mesh import Mesh
from llmexp.train.step import Gradient, Outcome

CASE = json.loads((Path(__file__).parent / "inputs" / "g01_micro.json").read_text())
SEQ = 10


def _row(n_tokens: int) -> Batch:
    ids = torch.arange(SEQ + 1)[None] % 7
    return Batch(
        ids=ids[:, :-1],
        targets=ids[:, 1:],
        mask=torch.arange(SEQ)[None] < n_tokens,
        positions=torch.arange(SEQ)[None],
        doc_ids=torch.zeros(1, SEQ, dtype=torch.int32),
        sample_ids=[0],
    )


def _take(micro_batches: Sequence[Batch], objective: Objective) -> tuple[Outcome, torch.Tensor]:
    model = ModelSpec(d_model=8, n_layers=1, n_heads=2, ffn_dim=16, vocab_size=7, max_seq_len=SEQ).build(
        seed=0
    )
    step = Gradient(model, objective, Mesh(), seed=0, bf16=False, grad_clip=None)
    outcome = step(micro_batches, 0, lambda loss: loss.backward())
    return outcome, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


class _Told(Objective):
    """The mean loss that the case gives for each micro-batch, summed over its tokens."""

    def __init__(self) -> None:
        self._means = iter([micro["mean_loss"] for micro in CASE["micro"]])

    def __call__(self, model: Decoder, batch: Any) -> Loss:
        return Loss(model.head_weight.sum() * 0 + next(self._means) * self.count(batch))


def test_the_logged_loss_is_the_mean_over_all_tokens() -> None:
    outcome, _ = _take([_row(micro["tokens"]) for micro in CASE["micro"]], _Told())
    assert outcome.loss == pytest.approx(CASE["right"])


def test_two_micro_batches_have_the_gradient_of_one_batch() -> None:
    rows = [_row(micro["tokens"]) for micro in CASE["micro"]]
    together = Batch(
        **{
            name: torch.cat([getattr(row, name) for row in rows])
            for name in ("ids", "targets", "mask", "positions", "doc_ids")
        }
    )
    apart, gradient = _take(rows, CrossEntropy())
    whole, expected = _take([together], CrossEntropy())
    assert apart.loss == pytest.approx(whole.loss, abs=1e-6)
    assert torch.allclose(gradient, expected, atol=1e-6)


def test_an_all_masked_micro_batch_adds_0() -> None:
    outcome, gradient = _take([_row(10), _row(0)], CrossEntropy())
    alone, expected = _take([_row(10)], CrossEntropy())
    assert outcome.loss == alone.loss
    assert torch.equal(gradient, expected)
