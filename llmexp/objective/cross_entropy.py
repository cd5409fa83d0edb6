"""Next-token cross entropy. Shapes: batch, seq; n = tokens that count; V = vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from llmexp.model.decoder import Decoder
from llmexp.objective.base import Loss, Objective, TokenBatch

LOGITS_AT_ONCE = 1 << 26
"""Elements of the (n, V) logits that are held whole: 256 MiB in float32, thrice that with gradients."""

IGNORED = -100
"""The target that counts nothing, as in torch."""


class CrossEntropy(Objective):
    """−log p(target) in nats, summed over the tokens that count; computed in float32."""

    def __call__(self, model: Decoder, batch: TokenBatch) -> Loss:
        """See :class:`Objective`."""
        hidden = model.hidden(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)
        return Loss(total=summed_cross_entropy(hidden, model.head_weight, batch.targets, batch.mask))


def summed_cross_entropy(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    mask: Tensor,
    *,
    logits_at_once: int = LOGITS_AT_ONCE,
) -> Tensor:
    """Sum over ``mask`` of the cross entropy of softmax(hidden @ head_weight.T), a float32 scalar.

    ``hidden`` (batch, seq, d_model), ``head_weight`` (V, d_model), ``targets`` int64 and ``mask``
    bool (batch, seq). Logits are in the dtype of autocast and then in float32. More than
    ``logits_at_once`` are computed in pieces, and again in the backward pass, so they are never all
    held. (torch's ``linear_cross_entropy`` would need float32 products to sum the loss in float32.)
    """
    rows, wanted = hidden.flatten(0, -2), targets.flatten()
    counted = mask.flatten()
    if rows.device.type == "cpu" and not bool(counted.all()):
        # Prompts are not worth a logit. On a GPU the unknown size would stall the queue.
        rows, wanted = rows[counted], wanted[counted]
    else:
        wanted = torch.where(counted, wanted, IGNORED)
    size = max(1, logits_at_once // head_weight.shape[0])
    if rows.shape[0] <= size:
        return _summed(rows, head_weight, wanted)
    pieces = [
        checkpoint(_summed, some, head_weight, of_them, use_reentrant=False)
        for some, of_them in zip(rows.split(size), wanted.split(size), strict=True)
    ]
    return torch.stack(pieces).sum()


def _summed(rows: Tensor, head_weight: Tensor, wanted: Tensor) -> Tensor:
    logits = F.linear(rows, head_weight).float()
    return F.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum")
