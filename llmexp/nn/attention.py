"""Causal self-attention with grouped key and value heads.

Shapes: x (batch, seq, d_model); q (batch, n_heads, seq, head_dim); k, v (batch, n_kv_heads, keys, head_dim).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from llmexp.nn.cache import Cache, LayerCache
from llmexp.nn.position import Rotation, rotate
from llmexp.nn.precision import for_products
from llmexp.nn.visibility import Visibility


class Attention(nn.Module):
    """Multi-head attention; with fewer key and value heads than heads, grouped (GQA, arXiv:2305.13245)."""

    def __init__(
        self,
        d_model: int,
        *,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.dropout_p = dropout
        self.q = nn.Linear(d_model, n_heads * head_dim, bias=bias)
        self.k = nn.Linear(d_model, n_kv_heads * head_dim, bias=bias)
        self.v = nn.Linear(d_model, n_kv_heads * head_dim, bias=bias)
        self.out = nn.Linear(n_heads * head_dim, d_model, bias=bias)

    def forward(
        self,
        x: torch.Tensor,
        *,
        visibility: Visibility,
        rotation: Rotation | None = None,
        cache: Cache | None = None,
        layer: int = 0,
    ) -> torch.Tensor:
        """``x`` (batch, seq, d_model); the same shape.

        ``rotation`` comes from a position part; with a ``cache``, keys and values are appended
        to its ``layer`` and ``visibility`` is the one that its ``reserve`` gave.
        """
        x = for_products(x)
        q = self._heads(self.q(x), self.n_heads)
        k = self._heads(self.k(x), self.n_kv_heads)
        v = self._heads(self.v(x), self.n_kv_heads)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            k, v = cache.append(layer, k, v)
        mixed = attend(q, k, v, visibility, dropout=self.dropout_p if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, max_len: int, *, dtype: torch.dtype, device: torch.device) -> LayerCache:
        """What this layer keeps of ``max_len`` tokens a row for later ones: its keys and values."""
        return LayerCache(batch, self.n_kv_heads, max_len, self.head_dim, dtype=dtype, device=device)

    def _heads(self, x: torch.Tensor, n_heads: int) -> torch.Tensor:
        return x.unflatten(-1, (n_heads, self.head_dim)).transpose(1, 2)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visibility: Visibility, *, dropout: float = 0.0
) -> torch.Tensor:
    """Scaled dot-product attention: the mixed values, (batch, n_heads, queries, head_dim)."""
    mask, causal = visibility
    if q.shape[2] == 1 and q.shape[1] != k.shape[1]:
        # One query a row: the heads of a group become queries of their key head, so no key is copied.
        grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, dropout_p=dropout).reshape(
            q.shape
        )
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )
