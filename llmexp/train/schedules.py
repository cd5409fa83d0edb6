"""Learning-rate schedules: pure functions (step, total steps) -> part of the peak rate.

``step`` counts from 0: the value is what optimizer step ``step`` uses. With warm-up of w steps,
step s < w gets (s + 1) / (w + 1), so that the first step is not lost and the peak comes at step w.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """Base: the warm-up, and then what a subclass says."""

    warmup_steps: int

    def __call__(self, step: int, total: int) -> float:
        """Part of the peak rate at optimizer step ``step`` of ``total``, within 0 and 1."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        return self.after_warmup(step, max(total, self.warmup_steps + 1))

    @abstractmethod
    def after_warmup(self, step: int, total: int) -> float:
        """The part of the peak rate once ``step`` has reached ``warmup_steps``, which is below ``total``."""

    def _elapsed(self, step: int, start: int, total: int) -> float:
        """How much of ``start`` … ``total`` has passed at ``step``, within 0 and 1; the last step has 1."""
        return min(1.0, (step - start) / max(1, total - 1 - start))


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine from 1 to ``min_ratio`` (Loshchilov and Hutter 2017, arXiv 1608.03983, one period)."""

    min_ratio: float

    def after_warmup(self, step: int, total: int) -> float:
        """See :class:`Schedule`."""
        elapsed = self._elapsed(step, self.warmup_steps, total)
        return self.min_ratio + (1 - self.min_ratio) * 0.5 * (1 + math.cos(math.pi * elapsed))


@dataclass(frozen=True, kw_only=True)
class Linear(Schedule):
    """A line from 1 to ``min_ratio``."""

    min_ratio: float

    def after_warmup(self, step: int, total: int) -> float:
        """See :class:`Schedule`."""
        return 1 - (1 - self.min_ratio) * self._elapsed(step, self.warmup_steps, total)


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """1 until the end."""

    def after_warmup(self, step: int, total: int) -> float:
        """See :class:`Schedule`."""
        del step, total
        return 1.0


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay(Schedule):
    """1, then a line to ``min_ratio`` over the last ``decay_fraction`` of all steps (arXiv 2404.06395)."""

    decay_fraction: float
    min_ratio: float

    def after_warmup(self, step: int, total: int) -> float:
        """See :class:`Schedule`."""
        decay = math.ceil(self.decay_fraction * total)
        start = max(self.warmup_steps, total - decay)
        if step < start:
            return 1.0
        return 1 - (1 - self.min_ratio) * (step - start + 1) / max(1, total - start)
