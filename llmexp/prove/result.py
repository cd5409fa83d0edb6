"""What a proof compared, and what came of it."""

from __future__ import annotations

import dataclasses
import math
import struct
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Comparison:
    """Pairs of numbers that should be equal; a pair differs where it is further apart than ``tolerance``."""

    what: str
    tolerance: float = 0.0
    """0 asks for equal bits."""
    numbers: int = 0
    largest: float = 0.0
    """Largest difference; NaN where one side had a number that the other lacked."""
    first: str | None = None
    """The first pair that differs, in words; None when all are equal."""

    @property
    def holds(self) -> bool:
        """Whether something was compared and nothing differs."""
        return self.numbers > 0 and self.first is None

    def add(self, where: str, expected: float | None, found: float | None) -> None:
        """Compare one pair; None stands for a number that is missing."""
        self.numbers += 1
        if expected is None or found is None:
            self.differ(f"{where}: {_word(expected)} and {_word(found)}", math.nan)
        elif not self._equal(expected, found):
            self.differ(f"{where}: {expected!r} and {found!r}", abs(expected - found))
        elif expected != found and not math.isnan(expected):
            self.largest = max(self.largest, abs(expected - found))

    def differ(self, where: str, difference: float) -> None:
        """Note a difference; only the first one is kept in words."""
        self.first = self.first or where
        if math.isnan(difference) or not difference <= self.largest:
            self.largest = difference

    def _equal(self, expected: float, found: float) -> bool:
        if struct.pack("<d", expected) == struct.pack("<d", found):
            return True
        return abs(expected - found) <= self.tolerance and self.tolerance > 0


@dataclass
class Proof:
    """One proof: what was done, and every comparison."""

    name: str
    stage: str
    """Name of the stage that it was made with."""
    comparisons: list[Comparison]
    notes: list[str] = field(default_factory=list)
    """What was done, a line each."""

    @property
    def holds(self) -> bool:
        """Whether every comparison holds."""
        return bool(self.comparisons) and all(one.holds for one in self.comparisons)

    @property
    def first(self) -> str | None:
        """The first number that differs, with what it is; None when none does."""
        return next((f"{one.what}, {one.first}" for one in self.comparisons if one.first), None)

    def as_json(self) -> dict[str, Any]:
        """With stable keys."""
        comparisons = [{**dataclasses.asdict(one), "holds": one.holds} for one in self.comparisons]
        return {
            "proof": self.name,
            "stage": self.stage,
            "holds": self.holds,
            "first_difference": self.first,
            "comparisons": comparisons,
            "notes": self.notes,
        }


def compare_tensors(
    what: str, expected: Any, found: Any, tolerance: float, where: str, into: Comparison
) -> None:
    """Compare two tensors of one shape into ``into``; ``where`` and the index name a pair."""
    import torch

    if expected.shape != found.shape:
        into.differ(f"{where}: {what} is {tuple(expected.shape)} and {tuple(found.shape)}", math.nan)
        return
    into.numbers += expected.numel()
    apart = (expected.double() - found.double()).abs()
    wrong = (apart > tolerance) | (torch.isnan(expected) != torch.isnan(found))
    if expected.numel():
        known = apart.nan_to_num(0.0)
        into.largest = max(into.largest, float(known.max()))
    if bool(wrong.any()):
        index = tuple(wrong.nonzero()[0].tolist())
        place = f"{where}, {what} {list(index)}"
        into.differ(f"{place}: {expected[index].item()!r} and {found[index].item()!r}", into.largest)


def _word(value: float | None) -> str:
    return "nothing" if value is None else repr(value)
