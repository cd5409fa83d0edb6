"""Which keys a query may look at.

Shapes: doc_ids (batch, seq); masks (batch, 1, queries, keys).
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Visibility(NamedTuple):
    """Which keys a query may look at; computed once a forward pass and shared by all layers."""

    mask: torch.Tensor | None
    """(batch, 1, queries, keys), added to the scores: 0 where visible, else -inf; None: see ``causal``."""
    causal: bool
    """Queries and keys are the same tokens, and a query sees those up to itself."""


CAUSAL = Visibility(mask=None, causal=True)


def document_visibility(doc_ids: torch.Tensor, dtype: torch.dtype = torch.float32) -> Visibility:
    """Each token sees the earlier ones of its own document and itself.

    ``doc_ids`` (batch, seq) integers; padding is a document of its own (-1), so that no row of
    the attention matrix is empty and nothing becomes NaN. ``dtype`` is that of the queries.
    """
    seq = doc_ids.shape[1]
    same = doc_ids[:, None, :, None] == doc_ids[:, None, None, :]
    causal = torch.ones(seq, seq, dtype=torch.bool, device=doc_ids.device).tril()
    return additive(same & causal, dtype)


def additive(visible: torch.Tensor, dtype: torch.dtype) -> Visibility:
    """``visible`` (batch, 1, queries, keys) bool as numbers to add to the scores.

    Given a bool mask, torch makes these numbers again in every layer, and keeps them for the
    backward pass.
    """
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return Visibility(mask=mask.masked_fill_(~visible, float("-inf")), causal=False)
