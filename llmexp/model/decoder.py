"""A decoder-only transformer made of built parts. Shapes: ids (batch, seq) -> logits (batch, seq, vocab)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from llmexp.nn.attention import Attention
from llmexp.nn.cache import Cache
from llmexp.nn.dropout import Dropout
from llmexp.nn.position import Position, Rotation
from llmexp.nn.precision import compute_dtype
from llmexp.nn.visibility import CAUSAL, Visibility, document_visibility


class Block(nn.Module):
    """Pre-norm residual block: attention, then feed-forward."""

    def __init__(
        self,
        *,
        attention: Attention,
        feed_forward: nn.Module,
        attention_norm: nn.Module,
        feed_forward_norm: nn.Module,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention_norm, self.attention = attention_norm, attention
        self.feed_forward_norm, self.feed_forward = feed_forward_norm, feed_forward
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: torch.Tensor,
        visibility: Visibility,
        rotation: Rotation | None,
        cache: Cache | None,
        layer: int,
    ) -> torch.Tensor:
        """``x`` (batch, seq, d_model); the same shape."""
        mixed = self.attention(
            self.attention_norm(x), visibility=visibility, rotation=rotation, cache=cache, layer=layer
        )
        x = x + self.dropout(mixed)
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Decoder(nn.Module):
    """Embedding, blocks, final norm and head. Without a ``head``, the embedding is the head."""

    def __init__(
        self,
        *,
        embed: nn.Embedding,
        position: Position,
        blocks: list[Block],
        norm: nn.Module,
        head: nn.Linear | None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed, self.position = embed, position
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = norm, head
        self.dropout = Dropout(dropout)
        self.recompute = False
        """Activation checkpointing: each block keeps its input alone and runs again in the backward pass."""

    @property
    def head_weight(self) -> torch.Tensor:
        """The matrix that turns hidden states into logits, (vocab, d_model)."""
        return self.embed.weight if self.head is None else self.head.weight

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor | None = None,
        doc_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        last_only: bool = False,
    ) -> torch.Tensor:
        """Logits (batch, seq, vocab), or (batch, 1, vocab) of the last token with ``last_only``.

        Arguments as for :meth:`hidden`.
        """
        hidden = self.hidden(ids, positions, doc_ids, cache, last_only)
        return nn.functional.linear(hidden, self.head_weight)

    def hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor | None = None,
        doc_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        last_only: bool = False,
    ) -> torch.Tensor:
        """Hidden states after the final norm, (batch, seq, d_model); with ``last_only`` (batch, 1, d_model).

        ``ids`` (batch, seq) int64. ``positions`` (batch, seq) int64, restarting in each document;
        None counts on from the cache's length or from 0. ``doc_ids`` (batch, seq): attention stays
        within equal ids, padding is -1; None is one document a row, and is faster.

        Raises:
            ValueError: documents without positions: they cannot be told from the ids alone.
        """
        if positions is None:
            positions = self._count(ids, doc_ids, cache)
        visibility = self._visibility(ids, doc_ids, cache)
        x = self.dropout(self.position.embed(self.embed(ids), positions))
        rotation = self.position.rotation(positions, x.dtype)
        for layer, block in enumerate(self.blocks):
            x = self._run(block, x, visibility, rotation, cache, layer)
        return self.norm(x[:, -1:] if last_only else x)

    def new_cache(self, batch: int, max_len: int) -> Cache:
        """An empty cache for ``batch`` rows of ``max_len`` tokens at most, in the dtype of products."""
        weight = self.embed.weight
        kept: dict[str, Any] = {"dtype": compute_dtype(weight), "device": weight.device}
        blocks = cast(list[Block], list(self.blocks))
        return Cache([block.attention.new_cache(batch, max_len, **kept) for block in blocks])

    def _count(self, ids: torch.Tensor, doc_ids: torch.Tensor | None, cache: Cache | None) -> torch.Tensor:
        if doc_ids is not None:
            raise ValueError("doc_ids without positions: give positions that restart in each document")
        if cache is not None:
            return cache.next_positions(ids.shape[1])
        return torch.arange(ids.shape[1], device=ids.device)[None]

    def _visibility(self, ids: torch.Tensor, doc_ids: torch.Tensor | None, cache: Cache | None) -> Visibility:
        if cache is not None:
            return cache.reserve(ids.shape[1], doc_ids, compute_dtype(self.embed.weight))
        return CAUSAL if doc_ids is None else document_visibility(doc_ids, compute_dtype(self.embed.weight))

    def _run(
        self,
        block: nn.Module,
        x: torch.Tensor,
        visibility: Visibility,
        rotation: Rotation | None,
        cache: Cache | None,
        layer: int,
    ) -> torch.Tensor:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(block, x, visibility, rotation, cache, layer, use_reentrant=False)
        if cache is not None:
            # Past a compiled call: it would be compiled again for every length and layer of the cache.
            return block.forward(x, visibility, rotation, cache, layer)
        return block(x, visibility, rotation, cache, layer)
