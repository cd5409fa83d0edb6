"""Several rewards in one number."""

from __future__ import annotations

from typing import Any

from llmexp.rollout.rewards.reward import Reward


class WeightedSum:
    """The sum of ``parts``, each times its weight of the same name."""

    def __init__(self, *, parts: dict[str, Reward], weights: dict[str, float]) -> None:
        self.parts, self.weights = parts, weights

    def __call__(self, record: dict[str, Any], completion: str) -> float:
        """Unbounded; each part is called once."""
        return sum(self.weights[name] * part(record, completion) for name, part in self.parts.items())
