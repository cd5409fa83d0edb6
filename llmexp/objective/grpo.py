"""Group relative policy optimisation (GRPO): Shao et al. 2024, arXiv:2402.03300, equations 3 and 4.

Shapes: batch, seq as in the batch; n = completion tokens that count; V = vocabulary.
Two departures from the paper, each with its source: the average is over the tokens of the whole
global batch, not first within each completion (Yu et al. 2025, arXiv:2503.14476, section 3.3), and the
clipping range may be wider above than below (there, section 3.1).
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from llmexp.model.decoder import Decoder
from llmexp.objective.base import Loss, Objective, TokenBatch

LOGITS_AT_ONCE = 1 << 25
"""Elements of the (n, V) logits that are held whole: 128 MiB in float32, about thrice that with gradients."""

LASTING = 20
"""Micro-batches in a row with a negative mean of log π − log π_ref, after which a warning is due."""

ROUNDING = 1e-4
"""Nats a token by which that mean may be below 0 with nothing wrong."""


class GRPO(Objective):
    """The clipped surrogate with group-relative advantages, and an optional penalty to a reference.

    The batch's ``extras`` hold ``old_logprobs`` (batch, seq) float32, log-probabilities of the
    targets under the policy that sampled them; ``advantages`` (batch,) float32; ``truncated``
    (batch,) bool; with ``beta`` above 0 ``ref_logprobs`` (batch, seq) float32. All log-probabilities
    are of the softmax at the sampling ``temperature``.
    """

    non_negative: ClassVar[bool] = False
    nothing_counts: ClassVar[str] = (
        "are all completions cut off (raise rollout.max_new_tokens), or all rewards of each prompt equal "
        "(raise rollout.group_size or rollout.temperature, or set rollout.drop_equal_groups=false)?"
    )
    why_empty: ClassVar[str] = "all rewards of each prompt are equal, or its completions are cut off"

    def __init__(
        self,
        *,
        clip_low: float,
        clip_high: float,
        beta: float,
        mask_truncated: bool,
        scale_by_std: bool,
        temperature: float,
    ) -> None:
        self.clip_low, self.clip_high, self.beta = clip_low, clip_high, beta
        self.mask_truncated, self.scale_by_std = mask_truncated, scale_by_std
        self.temperature = temperature
        self._negative_in_a_row = 0

    @property
    def needs_reference(self) -> bool:
        """Whether batches must hold ``ref_logprobs``."""
        return self.beta > 0

    def advantages(self, rewards: Tensor) -> Tensor:
        """(groups, group_size) rewards -> advantages, as configured; see :func:`group_advantages`."""
        return group_advantages(rewards, scale_by_std=self.scale_by_std)

    def counted(self, batch: TokenBatch) -> Tensor:
        """(batch, seq) bool: one mask for the sum, the divisor and the metrics."""
        if not self.mask_truncated:
            return batch.mask
        return batch.mask & ~batch.extras["truncated"][:, None]

    def count(self, batch: TokenBatch) -> Tensor:
        """Completion tokens that count, end tokens included; without those of truncated rows if masked."""
        return torch.count_nonzero(self.counted(batch))

    def __call__(self, model: Decoder, batch: TokenBatch) -> Loss:
        """See :class:`Objective`; a batch in which nothing counts gives 0 with zero gradients."""
        counted = self.counted(batch)
        hidden = model.hidden(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)
        logprobs, entropy = token_logprobs(
            hidden[counted], model.head_weight, batch.targets[counted], self.temperature
        )
        advantages = batch.extras["advantages"][:, None].expand(counted.shape)[counted]
        policy, ratio, clipped = clipped_surrogate(
            logprobs, batch.extras["old_logprobs"][counted], advantages, self.clip_low, self.clip_high
        )
        metrics = {
            "rl/ratio_mean": ratio.sum(),
            "rl/clip_fraction": clipped.sum(),
            "rl/entropy": entropy.sum(),
        }
        total = policy.sum()
        if self.needs_reference:
            reference = batch.extras["ref_logprobs"][counted]
            divergence = kl_k3(logprobs, reference)
            total = total + self.beta * divergence.sum()
            metrics["rl/kl"] = divergence.detach().sum()
            self._watch(logprobs.detach() - reference)
        return Loss(total=total, metrics={key: value.float() for key, value in metrics.items()})

    def _watch(self, k1: Tensor) -> None:
        """Warn once when E[log π − log π_ref], a divergence when π sampled, stays below 0."""
        if k1.numel() == 0:
            return
        self._negative_in_a_row = self._negative_in_a_row + 1 if float(k1.mean()) < -ROUNDING else 0
        if self._negative_in_a_row == LASTING:
            warnings.warn(
                f"the mean of log π − log π_ref was negative in {LASTING} micro-batches in a row: "
                "completions come from another policy than the one trained, or the reference is not fixed",
                RuntimeWarning,
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        """How long the sampled divergence has been negative."""
        return {"negative_in_a_row": self._negative_in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave.

        Raises:
            ValueError: ``state`` is of another objective.
        """
        if set(state) != {"negative_in_a_row"}:
            raise ValueError(f"the checkpoint's objective is not GRPO: it holds {sorted(state)}")
        self._negative_in_a_row = int(state["negative_in_a_row"])


def group_advantages(rewards: Tensor, *, scale_by_std: bool) -> Tensor:
    """(groups, group_size) rewards -> float32 of the same shape: reward less the group's mean.

    With ``scale_by_std`` divided by the group's (population) standard deviation, as in the paper, section
    4.1.2; without, after Liu et al. 2025, arXiv:2503.20783. A group of equal rewards is exactly 0.

    Raises:
        ValueError: a reward is not finite.
    """
    if not bool(torch.isfinite(rewards).all()):
        raise ValueError("a reward is not finite")
    rewards = rewards.double()
    centred = rewards - rewards.mean(-1, keepdim=True)
    if scale_by_std:
        centred = centred / centred.square().mean(-1, keepdim=True).sqrt()
    # The mean of equal numbers may differ from them in the last bit, and its deviation from 0.
    equal = rewards.amax(-1, keepdim=True) == rewards.amin(-1, keepdim=True)
    return torch.where(equal, 0.0, centred).float()


def clipped_surrogate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor, Tensor]:
    """−min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A) with r = exp(logprobs − old_logprobs), a token each.

    All (n,). Returns the loss with gradient; r without; and whether the clipped side was the
    smaller, so that the token has no gradient. Where A is 0 the loss and its gradient are exactly
    0, even if r overflowed.
    """
    log_ratio = logprobs - old_logprobs
    ratio = torch.where(advantages == 0, 0.0, log_ratio).exp()
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    free, held = ratio * advantages, bounded * advantages
    return -torch.minimum(free, held), log_ratio.detach().exp(), (held < free).detach()


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Schulman's estimate of KL(π ‖ π_ref) from samples of π: exp(d) − d − 1, d = ref_logprobs − logprobs.

    Never negative, 0 with zero gradient where both agree. Source: "Approximating KL divergence",
    2020, joschu.net/blog/kl-approx.html, k3; equation 4 of the paper. Shapes (n,).
    """
    difference = ref_logprobs - logprobs
    return difference.expm1() - difference


def token_logprobs(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    temperature: float,
    *,
    logits_at_once: int = LOGITS_AT_ONCE,
) -> tuple[Tensor, Tensor]:
    """log softmax(hidden @ head_weight.T / temperature) at the targets, and that softmax's entropy in nats.

    ``hidden`` (n, d_model), ``head_weight`` (V, d_model), ``targets`` (n,) int64 -> two (n,) float32,
    the second without gradient. More than ``logits_at_once`` logits are computed in pieces, and
    again in the backward pass, so they are never all held.
    """
    rows = max(1, logits_at_once // head_weight.shape[0])
    if hidden.shape[0] <= rows:
        return _token_logprobs(hidden, head_weight, targets, temperature)
    pieces = [
        checkpoint(_token_logprobs, some, head_weight, wanted, temperature, use_reentrant=False)
        for some, wanted in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat([piece[0] for piece in pieces]), torch.cat([piece[1] for piece in pieces])


def _token_logprobs(
    hidden: Tensor, head_weight: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits = F.linear(hidden, head_weight).float() / temperature
    log_z = logits.logsumexp(-1)
    with torch.no_grad():
        entropy = log_z - ((logits - log_z[:, None]).exp() * logits).sum(-1)
    return logits.gather(-1, targets[:, None])[:, 0] - log_z, entropy
