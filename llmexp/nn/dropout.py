"""Dropout whose mask is a function of (seed, step, index), so that no generator state needs saving."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def hash_seed(*parts: int | str) -> int:
    """A 63-bit seed from ``parts``, the same in every process and on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def has_dropout(model: nn.Module) -> bool:
    """Whether any part of ``model`` drops anything in training mode."""
    return any(getattr(module, "dropout_p", 0.0) > 0.0 for module in model.modules())


def seed_dropout(seed: int, step: int, index: int) -> None:
    """Seed torch's default generators for the dropout of one micro-batch.

    Call it before each forward pass of a model that :func:`has_dropout`. ``index`` tells apart
    what is computed in the same optimizer step on different data (the data-parallel index and
    the micro-batch within it); ranks that hold parts of the same activations pass the same one.
    It is the default generators that are seeded because fused attention and activation
    checkpointing read no other. Nothing else in training draws from them.
    """
    torch.manual_seed(hash_seed("dropout", seed, step, index))


class Dropout(nn.Module):
    """Sets each element to 0 with probability ``p`` in training mode and scales the others by 1/(1-p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropout_p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of any shape; the same shape. The identity at ``p`` 0 and in evaluation mode."""
        if self.dropout_p == 0.0 or not self.training:
            return x
        return nn.functional.dropout(x, self.dropout_p, training=True)
