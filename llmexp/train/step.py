"""One optimizer step's gradient: the same whatever the number of micro-batches and of ranks.

Shapes: batch, seq as in each micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from llmexp.data.batch import Batch
from llmexp.model.decoder import Decoder
from llmexp.nn.dropout import has_dropout, seed_dropout
from llmexp.nn.precision import autocast
from llmexp.objective.base import Loss, Objective
from llmexp.parallel.gradients import GradientSum
from llmexp.parallel.mesh import Mesh


@dataclass(frozen=True)
class Outcome:
    """What a global batch gave, equal on every rank."""

    samples: int
    tokens: int
    """Of every sequence, padding and prompts included."""
    counted: int
    """Tokens that count in the loss."""
    loss: float = float("nan")
    """Mean over the tokens that count; NaN when there are none."""
    grad_norm: float = float("nan")
    """Of the whole gradient, before clipping."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The objective's, as means over the tokens that count."""


class Gradient:
    """Computes the gradient of the mean loss over the tokens that count in the global batch."""

    def __init__(
        self,
        model: Decoder,
        objective: Objective,
        mesh: Mesh,
        *,
        seed: int,
        bf16: bool,
        grad_clip: float | None,
    ) -> None:
        self._model, self._objective, self._mesh = model, objective, mesh
        self._seed, self._bf16, self._grad_clip = seed, bf16, grad_clip
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._reduce = GradientSum(self._trained) if mesh.size > 1 else None
        self._drops = has_dropout(model)

    def close(self) -> None:
        """Take the hooks off the model."""
        if self._reduce is not None:
            self._reduce.close()

    def __call__(
        self, micro_batches: Sequence[Batch], step: int, backward: Callable[[Tensor], None]
    ) -> Outcome:
        """Leave the clipped gradient of this rank's ``micro_batches`` and the other ranks' in ``.grad``.

        ``step`` seeds the dropout. The counts are summed over ranks before the first forward
        pass, so that each micro-batch's sum is divided by the final number. With nothing that
        counts, nothing is computed.
        """
        shares = [
            sum(len(batch) for batch in micro_batches),
            sum(batch.ids.numel() for batch in micro_batches),
            sum(int(self._objective.count(batch)) for batch in micro_batches),
        ]
        samples, tokens, counted = (int(n) for n in self._mesh.sum([float(n) for n in shares]))
        if counted == 0:
            return Outcome(samples, tokens, counted)
        sums = self._accumulate(micro_batches, step, counted, backward)
        norm = self._clip()
        names = ["loss", *(name for name in sums if name != "loss")]
        # The one place in a step where the host waits for the device.
        *values, norm_value = torch.stack([*(sums[name].float() for name in names), norm.float()]).tolist()
        means = dict(zip(names, (value / counted for value in self._mesh.sum(values)), strict=True))
        return Outcome(samples, tokens, counted, means.pop("loss"), norm_value, means)

    def _accumulate(
        self, micro_batches: Sequence[Batch], step: int, counted: int, backward: Callable[[Tensor], None]
    ) -> dict[str, Tensor]:
        """Run every micro-batch forward and backward; this rank's sums, on the device."""
        sums: dict[str, Tensor] = {}
        for i, batch in enumerate(micro_batches):
            if self._drops:
                seed_dropout(self._seed, step, i * self._mesh.size + self._mesh.rank)
            loss = self._forward(batch.to(self._mesh.device))
            if self._reduce is not None and i == len(micro_batches) - 1:
                self._reduce.arm()
            backward(loss.total / counted)
            for name, value in {"loss": loss.total, **loss.metrics}.items():
                sums[name] = sums[name] + value.detach() if name in sums else value.detach()
        if self._reduce is not None:
            self._reduce.finish()
        return sums

    def _forward(self, batch: Batch) -> Loss:
        with autocast(self._mesh.device, bf16=self._bf16):
            return self._objective(self._model, batch)

    def _clip(self) -> Tensor:
        """Scale the gradient to ``grad_clip`` where it is longer; its norm before."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in self._trained if p.grad is not None])
        if self._grad_clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._trained, self._grad_clip, norm)
        return norm
