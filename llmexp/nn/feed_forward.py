"""Position-wise feed-forward parts. Shapes: x (..., d_model) -> (..., d_model)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from llmexp.nn.precision import for_products


class SwiGLU(nn.Module):
    """``down(silu(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, ffn_dim: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, ffn_dim, bias=bias)
        self.up = nn.Linear(d_model, ffn_dim, bias=bias)
        self.down = nn.Linear(ffn_dim, d_model, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (..., d_model); the same shape."""
        x = for_products(x)
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GELU(nn.Module):
    """``down(gelu(up(x)))`` (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    ``approximate`` is torch's: ``none`` for the exact function, ``tanh`` for GPT-2's approximation.
    """

    def __init__(self, d_model: int, ffn_dim: int, *, bias: bool = True, approximate: str = "none") -> None:
        super().__init__()
        self.up = nn.Linear(d_model, ffn_dim, bias=bias)
        self.down = nn.Linear(ffn_dim, d_model, bias=bias)
        self.approximate = approximate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (..., d_model); the same shape."""
        return self.down(F.gelu(self.up(x), approximate=self.approximate))
