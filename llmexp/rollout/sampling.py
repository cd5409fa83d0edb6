"""Which token comes next. Shapes: rows = sequences being generated, vocab = vocabulary size.

Randomness: a row owns a 64-bit key, hashed from (seed, sample, index); the uniform number of
position ``t`` is a pure function of (key, t). So a completion does not depend on which other rows
share its batch, on their order, or on what was drawn before: there is no generator state.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


COLDEST = 1e-4
"""Below it no token but the likeliest has a probability, and logits divided by it may overflow."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a completion is drawn. The order is: temperature, top-k, top-p, min-p, draw."""

    temperature: float = 1.0
    """Divides the logits; 0, or less than ``COLDEST``, takes the likeliest token, whatever the key."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0, or k at or above the vocabulary's size, keeps all."""
    top_p: float = 1.0
    """Keep the likeliest tokens up to and including the one that crosses this mass; 1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest one's probability; 0 drops none."""
    max_new_tokens: int = 256
    """A completion without an end token is cut after so many."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature {self.temperature} is below 0")
        if not (0 <= self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise ValueError(f"top_p {self.top_p} and min_p {self.min_p} lie between 0 and 1")
        if self.top_k < 0:
            raise ValueError(f"top_k {self.top_k} is below 0")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens {self.max_new_tokens} is below 1")


def completion_key(seed: int, sample: int, index: int) -> int:
    """The signed 64-bit key of completion ``index`` of ``sample`` (BLAKE2b, the same on every machine)."""
    digest = hashlib.blake2b(f"{seed}/{sample}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniforms(keys: Tensor, position: int) -> Tensor:
    """One number in [0, 1) a row: output ``position`` of SplitMix64 seeded with the row's key.

    ``keys`` (rows,) int64 -> (rows,) float64 of 53 random bits. Source: Steele, Lea and Flood,
    "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 16.
    """
    # Python wraps the product to 64 bits here; the tensor operations below wrap by themselves.
    offset = ((position + 1) * _GOLDEN + 2**63) % 2**64 - 2**63
    state = keys + offset
    state = (state ^ _shift_right(state, 30)) * _MIX_1
    state = (state ^ _shift_right(state, 27)) * _MIX_2
    state = state ^ _shift_right(state, 31)
    return _shift_right(state, 11).double() * 2.0**-53


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Logical shift of int64: torch's own copies the sign bit."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def kept_tokens(probabilities: Tensor, sampling: Sampling) -> Tensor:
    """Which tokens may be drawn: (rows, vocab) of any float dtype -> (rows, vocab) bool.

    The likeliest token is always kept. Ties go to the lower id, so exactly ``top_k`` remain.
    A token is kept by top-p when the mass *before* it is below ``top_p`` (Holtzman et al. 2020,
    section 3.1), the mass being that of what top-k left; ``top_p`` 1 is off, not a comparison with a
    sum that rounds.
    """
    vocab = probabilities.shape[-1]
    keep = torch.ones_like(probabilities, dtype=torch.bool)
    if 0 < sampling.top_k < vocab or sampling.top_p < 1:
        ordered, order = probabilities.float().sort(dim=-1, descending=True, stable=True)
        k = sampling.top_k if sampling.top_k > 0 else vocab
        ordered = ordered[:, :k].double()
        before = ordered.cumsum(-1) - ordered
        before[:, 0] = 0.0
        kept_of_ordered = torch.zeros_like(keep)
        within = before < sampling.top_p * ordered.sum(-1, keepdim=True)
        kept_of_ordered[:, :k] = within if sampling.top_p < 1 else True
        kept_of_ordered[:, 0] = True
        keep = torch.zeros_like(keep).scatter(-1, order, kept_of_ordered)
    if sampling.min_p > 0:
        keep &= probabilities >= sampling.min_p * probabilities.amax(-1, keepdim=True)
    return keep


def draw(
    logits: Tensor, keys: Tensor, position: int, sampling: Sampling, *, vocab_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting the distribution function at the row's uniform number.

    Args:
        logits: (rows, vocab) float, unscaled.
        keys: (rows,) int64, see :func:`completion_key`.
        position: index of the token in the completion, from 0.
        sampling: temperature and truncation.
        vocab_size: ids from here on are never drawn: rows that pad the embedding stand for no token.

    Returns:
        ids (rows,) int64, and their log-probabilities (rows,) float32 under the softmax of the logits
        at the sampling temperature (at temperature 0: at temperature 1) *before* truncation: the
        number that a trainer gets from a full forward pass.

    Raises:
        FloatingPointError: a row's logits hold NaN or +inf.
    """
    logits = logits.float()
    greedy = sampling.temperature < COLDEST
    if not greedy and sampling.temperature != 1:
        logits = logits / sampling.temperature
    log_z = logits.logsumexp(-1)
    if not bool(torch.isfinite(log_z).all()):
        rows = (~torch.isfinite(log_z)).nonzero()[:, 0].tolist()
        raise FloatingPointError(f"logits of rows {rows[:8]} are not finite at completion token {position}")
    if greedy:
        ids = logits[:, :vocab_size].argmax(-1)
    else:
        probabilities = (logits - log_z[:, None]).exp()[:, :vocab_size]
        ids = _invert(probabilities, uniforms(keys, position), sampling)
    return ids, logits.gather(-1, ids[:, None])[:, 0] - log_z


def _invert(probabilities: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """The first token whose cumulated probability exceeds ``uniform`` (rows,) of the kept mass."""
    if sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0:
        probabilities = probabilities * kept_tokens(probabilities, sampling)
    cumulated = probabilities.cumsum(-1, dtype=torch.float64)
    total = cumulated[:, -1]
    # A product that rounds up to the total would point behind the last token with any probability.
    aim = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, aim[:, None], right=True)[:, 0]
