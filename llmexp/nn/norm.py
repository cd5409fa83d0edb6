"""Normalisation of the residual stream, over the last dimension."""

from __future__ import annotations

from torch import nn


def rms_norm(d_model: int, *, eps: float) -> nn.RMSNorm:
    """RMSNorm with a gain and without bias (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    return nn.RMSNorm(d_model, eps=eps)


def layer_norm(d_model: int, *, eps: float, bias: bool) -> nn.LayerNorm:
    """LayerNorm with a gain and an optional bias (Ba et al. 2016, arXiv:1607.06450)."""
    return nn.LayerNorm(d_model, eps=eps, bias=bias)
