"""G03: clipped while still scaled; the schedule ran ahead of a step not taken (pytorch-lightning#9694).

There is no loss scaler here: the narrow precision is bfloat16, whose range is that of float32, so a
gradient is never scaled. What the case asks of a step whose gradient is infinite holds all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from llmexp.data.batch import Batch
from llmexp.model.config import ModelSpec
from llmexp.model.decoder import Decoder
from llmexp.objective.base import Loss, TokenBatch
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.config import ParallelSpec
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker
from llmexp.train.config import AdamWSpec, CosineSpec, Device, OnBadLoss, Precision, TrainerSpec
from llmexp.train.fit import fit
from llmexp.train.state import weights_hash

VOCAB, SEQ, STEPS = 32, 12, 4
CLIP = 0.5
SIZES: dict[str, Any] = {"d_model": 16, "n_layers": 2, "n_heads": 2, "ffn_dim": 32, "max_seq_len": SEQ}


class _Rows:
    """Four rows a step."""

    def step(self, step: int) -> list[Batch]:
        ids = torch.randint(0, VOCAB, (4, SEQ + 1), generator=torch.Generator().manual_seed(step))
        return [
            Batch(
                ids=ids[:, :-1],
                targets=ids[:, 1:],
                mask=torch.ones(4, SEQ, dtype=torch.bool),
                positions=torch.arange(SEQ).expand(4, SEQ),
                doc_ids=torch.zeros(4, SEQ, dtype=torch.int32),
                sample_ids=[4 * step + i for i in range(4)],
            )
        ]

    figures: ClassVar[dict[str, float]] = {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state == {}


class _Infinite(CrossEntropy):
    """Cross entropy whose gradient is infinite in the first step, while its value is an ordinary one."""

    def __call__(self, model: Decoder, batch: TokenBatch) -> Loss:
        loss = super().__call__(model, batch)
        if 0 not in batch.sample_ids:  # type: ignore[attr-defined]
            return loss
        return Loss(loss.total + torch.sqrt(model.norm.weight.sum() * 0))


class _Kept(Tracker):
    def __init__(self) -> None:
        self.values: dict[str, dict[int, float]] = {}

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self.values.setdefault(key, {})[step] = value


def _train(folder: Path, precision: Precision, steps: int) -> Any:
    tracker, model = _Kept(), ModelSpec(**SIZES, vocab_size=VOCAB).build(seed=0)
    fit(
        model=model,
        objective=_Infinite(),
        source=_Rows(),
        trainer=TrainerSpec(
            max_steps=steps,
            global_batch=4,
            grad_clip=CLIP,
            precision=precision,
            device=Device.cpu,
            on_bad_loss=OnBadLoss.skip,
        ),
        optimizer=AdamWSpec(lr=1e-2),
        scheduler=CosineSpec(warmup_steps=2),
        parallel=ParallelSpec(),
        seed=0,
        seq_len=SEQ,
        run_dir=folder,
        tracker=tracker,
        progress=Progress(quiet=True),
    )
    return tracker.values, model


@pytest.mark.parametrize("precision", list(Precision))
def test_a_step_with_an_infinite_gradient_moves_neither_weights_nor_optimizer_nor_rate(
    tmp_path: Path, precision: Precision
) -> None:
    logged, _ = _train(tmp_path / "infinite", precision, STEPS)
    assert logged["train/skipped_steps"] == {1: 1.0}
    assert not math.isfinite(logged["train/grad_norm"][1])
    assert 1 not in logged["train/lr"]
    assert logged["train/lr"][2] == pytest.approx(1e-2 / 3)  # the first of two steps of warm-up
    _, untouched = _train(tmp_path / "only", precision, 1)
    assert weights_hash(untouched) == weights_hash(ModelSpec(**SIZES, vocab_size=VOCAB).build(seed=0))


def test_the_logged_norm_is_of_the_gradient_as_it_is_and_narrow_precision_updates_as_full_does(
    tmp_path: Path,
) -> None:
    weights, norms = {}, {}
    for precision in Precision:
        logged, model = _train(tmp_path / precision.value, precision, 2)
        norms[precision] = logged["train/grad_norm"][2]
        weights[precision] = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert norms[Precision.fp32] > CLIP
    assert norms[Precision.bf16] == pytest.approx(norms[Precision.fp32], rel=0.02)
    assert float((weights[Precision.bf16] - weights[Precision.fp32]).abs().mean()) < 1e-3
