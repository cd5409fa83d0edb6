"""Where a run is: everything about its progress that is neither a weight nor the optimizer's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Position:
    """Progress of a run, saved in every checkpoint as JSON.

    A step is one global batch. ``step`` counts all of them, those that were left out as bad or
    empty too, so that the data goes on where it was; the learning rate follows ``updates``.
    """

    step: int = 0
    skipped: list[int] = field(default_factory=list)
    """Steps (counted from 1) on which the optimizer was not stepped."""
    empty: int = 0
    """How many of them were so because nothing counted, and not because the loss was bad."""
    samples: int = 0
    """Sequences consumed, over all ranks."""
    tokens: int = 0
    """Tokens seen, over all ranks, padding and prompts included."""
    counted: int = 0
    """Tokens that counted in the loss, over all ranks."""
    seconds: float = 0.0
    """Time in the loop, summed over restarts."""
    recent: list[float] = field(default_factory=list)
    """The last good losses, for the running median."""
    last_loss: float | None = None
    best_val: float | None = None
    """Lowest held-out loss, or the highest reward, negated."""
    best_step: int | None = None
    stale: int = 0
    """Held-out evaluations in a row that brought no new best."""
    stopped: bool = False
    """Whether ``stop_when`` has ended the run."""

    def forget_best(self) -> None:
        """No held-out figure counts yet: the next one is the best."""
        self.best_val, self.best_step, self.stale = None, None, 0

    @property
    def updates(self) -> int:
        """Steps on which the optimizer was stepped."""
        return self.step - len(self.skipped)

    def as_data(self) -> dict[str, Any]:
        """As JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Position:
        """The inverse of :meth:`as_data`."""
        return cls(**data)
