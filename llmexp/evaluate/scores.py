"""Sums over scored tokens, and the figures that follow from them.

Only sums are kept, never means of batches, so that the figures are the same however the
tokens were cut into batches or spread over ranks.

Shapes: n = scored tokens, vocab = size of the vocabulary, bins = confidence bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


class NothingToScore(ValueError):
    """No token counts: a figure over nothing is not a number, so there is none."""


@dataclass
class TokenScores:
    """Sums over the tokens scored so far; all float64 on the CPU."""

    nats: float
    """Summed negative log-likelihood, in nats."""
    n_tokens: int
    """Tokens scored."""
    n_correct: int
    """Tokens whose most likely prediction was right."""
    counts: Tensor
    """(bins,) float64: tokens by confidence of their top-1 prediction."""
    confidences: Tensor
    """(bins,) float64: summed confidence in each bin."""
    corrects: Tensor
    """(bins,) float64: right predictions in each bin."""

    @classmethod
    def empty(cls, n_bins: int) -> TokenScores:
        """Nothing scored yet, with ``n_bins`` equal-width confidence bins over [0, 1]."""
        return cls(0.0, 0, 0, *(torch.zeros(n_bins, dtype=torch.float64) for _ in range(3)))

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Add tokens: ``logits`` (n, vocab) of any float dtype, ``targets`` (n,) int64.

        Log-probabilities are taken in float32 or wider; the sums are in float64. A target
        whose logit is -inf adds infinite nats: the loss is then reported as inf.
        """
        if targets.numel() == 0:
            return
        wide = logits if logits.dtype == torch.float64 else logits.float()
        normaliser = torch.logsumexp(wide, dim=-1)
        chosen = wide.gather(-1, targets[:, None]).squeeze(-1)
        top, predicted = wide.max(dim=-1)
        confidence = (top - normaliser).exp().clamp(max=1.0).double().cpu()
        correct = (predicted == targets).cpu()
        self.nats += float((normaliser - chosen).double().sum())
        self.n_tokens += targets.numel()
        self.n_correct += int(correct.sum())
        n_bins = len(self.counts)
        inner_edges = torch.linspace(0, 1, n_bins + 1, dtype=torch.float64)[1:-1]
        index = torch.bucketize(confidence, inner_edges, right=True)
        self.counts += torch.bincount(index, minlength=n_bins)
        self.confidences += torch.bincount(index, weights=confidence, minlength=n_bins)
        self.corrects += torch.bincount(index, weights=correct.double(), minlength=n_bins)

    def loss(self) -> float:
        """Mean negative log-likelihood, nats per token.

        Raises:
            NothingToScore: no token was scored.
        """
        if self.n_tokens == 0:
            raise NothingToScore("no token was scored")
        return self.nats / self.n_tokens

    def accuracy(self) -> float:
        """Share of tokens whose most likely prediction was right.

        Raises:
            NothingToScore: no token was scored.
        """
        if self.n_tokens == 0:
            raise NothingToScore("no token was scored")
        return self.n_correct / self.n_tokens

    def ece(self) -> float:
        """Expected calibration error of the top-1 prediction, in [0, 1].

        The mean over tokens of |accuracy - confidence| of the token's bin (Guo et al. 2017,
        "On Calibration of Modern Neural Networks", arXiv:1706.04599, equation 3).

        Raises:
            NothingToScore: no token was scored.
        """
        if self.n_tokens == 0:
            raise NothingToScore("no token was scored")
        return float((self.corrects - self.confidences).abs().sum() / self.n_tokens)

    def calibration(self) -> list[dict[str, float]]:
        """The reliability diagram: for each bin its bounds, token count, mean confidence, accuracy.

        Empty bins have a count of 0 and neither confidence nor accuracy.
        """
        n_bins = len(self.counts)
        bins = []
        for i, count in enumerate(self.counts.tolist()):
            row = {"low": i / n_bins, "high": (i + 1) / n_bins, "count": int(count)}
            if count:
                row["confidence"] = float(self.confidences[i]) / count
                row["accuracy"] = float(self.corrects[i]) / count
            bins.append(row)
        return bins


def perplexity(loss: float) -> float:
    """exp(loss) for a loss in nats per token; inf where that overflows a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(nats: float, n_bytes: int) -> float:
    """Summed nats as bits per UTF-8 byte of the same text: comparable between tokenizers.

    Raises:
        NothingToScore: the text has no byte.
    """
    if n_bytes <= 0:
        raise NothingToScore("the scored text has no byte")
    return nats / math.log(2) / n_bytes
