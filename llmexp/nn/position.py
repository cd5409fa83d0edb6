"""Where a token stands: rotary, learned, or no position information.

A position part acts at two places, either of which it may leave alone: on the embedded tokens
(:meth:`Position.embed`) and, through a rotation, on queries and keys (:meth:`Position.rotation`).
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, each (batch, 1, seq, head_dim), in the dtype of the residual stream."""


class Position(nn.Module):
    """No position information: both hooks leave what they get as it is."""

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Embedded tokens ``x`` (batch, seq, d_model) at integer ``positions`` (batch, seq); same shape."""
        return x

    def rotation(self, positions: torch.Tensor, dtype: torch.dtype) -> Rotation | None:  # noqa: ARG002
        """The rotation of queries and keys at ``positions`` (batch, seq), or None."""
        return None


class LearnedPosition(Position):
    """A learned vector per position, added to the token's (GPT-2)."""

    def __init__(self, max_seq_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_seq_len, d_model))

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """See :class:`Position`. Raises IndexError for positions of ``max_seq_len`` and above."""
        return x + nn.functional.embedding(positions, self.weight)


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretching of rotary wavelengths to longer contexts."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_seq_len: int


class RotaryPosition(Position):
    """Rotary embedding over all of ``head_dim`` (Su et al. 2021, arXiv:2104.09864).

    The two components of a rotated pair lie ``head_dim / 2`` apart (GPT-NeoX's order, in which
    Hugging Face stores Llama's weights). It holds no buffer: frequencies are computed in fp32
    from four numbers at each forward pass, so casting the model or building it on the meta
    device cannot damage them.
    """

    def __init__(self, head_dim: int, *, theta: float, scaling: Llama3Scaling | None = None) -> None:
        super().__init__()
        self.head_dim, self.theta, self.scaling = head_dim, theta, scaling

    def rotation(self, positions: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """See :class:`Position`."""
        frequencies = rotary_frequencies(self.head_dim, self.theta, self.scaling, device=positions.device)
        angles = positions[:, None, :, None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotary_frequencies(
    head_dim: int, theta: float, scaling: Llama3Scaling | None = None, *, device: torch.device | None = None
) -> torch.Tensor:
    """Angular frequencies in radians per position: (head_dim / 2,) fp32, highest first."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64, device=device).float() / head_dim
    frequencies = 1.0 / theta**exponents
    return frequencies if scaling is None else _stretch(frequencies, scaling)


def _stretch(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Divide low frequencies by the factor, keep high ones, interpolate between.

    As Meta's llama-models does for Llama 3.1: the band is bounded by the wavelengths
    original_max_seq_len / low_freq_factor and original_max_seq_len / high_freq_factor.
    """
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = (scaling.original_max_seq_len / wavelengths - low) / (high - low)
    between = (1 - kept) * frequencies / scaling.factor + kept * frequencies
    stretched = torch.where(
        wavelengths > scaling.original_max_seq_len / low, frequencies / scaling.factor, between
    )
    return torch.where(wavelengths < scaling.original_max_seq_len / high, frequencies, stretched)


def rotate(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate ``x`` (batch, heads, seq, head_dim) by ``rotation``; the same shape."""
    cosines, sines = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines
