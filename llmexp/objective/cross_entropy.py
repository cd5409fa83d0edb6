"""Next-token cross entropy. Shapes: batch, seq; n = tokens that count; V = vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

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
    bool (batch, seq). Up to ``logits_at_once`` logits are held whole, in the dtype of autocast and
    then in float32. More go through torch's chunked ``linear_cross_entropy`` in float32: on CPU it
    is 7 % slower at V = 8,192 but never holds all logits (with bfloat16 inputs it would also sum
    the loss in bfloat16, 0.3 % off).
    """
    rows, wanted = hidden.flatten(0, -2), targets.flatten()
    counted = mask.flatten()
    if rows.device.type == "cpu" and not bool(counted.all()):
        # Prompts are not worth a logit. On a GPU the unknown size would stall the queue.
        rows, wanted = rows[counted], wanted[counted]
    else:
        wanted = torch.where(counted, wanted, IGNORED)
    if rows.shape[0] * head_weight.shape[0] <= logits_at_once:
        logits = F.linear(rows, head_weight)
        return F.cross_entropy(logits.float(), wanted, ignore_index=IGNORED, reduction="sum")
    return F.linear_cross_entropy(
        rows.float(),
        head_weight.float(),
        wanted,
        ignore_index=IGNORED,
        reduction="sum",
        options=torch.nn.LinearCrossEntropyOptions(),
    )
