"""Exact duplicates: which texts were seen before, in eight bytes a text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from llmexp.corpus.records import Record, hash64, normalized, text_of


class HashSet:
    """A growing set of 64-bit hashes in sorted arrays, each at least twice the next.

    Merging runs of like size keeps their number logarithmic (the scheme of log-structured merge
    trees, O'Neil et al. 1996). A text is taken for a duplicate by chance with probability
    n / 2**64 for n texts.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Add hashes (n, uint64); returns (n, bool): which were in the set, or earlier in ``hashes``."""
        seen = np.ones(len(hashes), dtype=bool)
        _, first = np.unique(hashes, return_index=True)
        seen[first] = False
        for run in self._runs:
            at = np.searchsorted(run, hashes)
            seen |= run[np.minimum(at, len(run) - 1)] == hashes
        fresh = np.sort(hashes[~seen])
        if len(fresh):
            self._runs.append(fresh)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")  # radix or timsort: two sorted runs merge in one pass
            self._runs.append(merged)
        return seen


@dataclass(kw_only=True)
class SeenTexts:
    """The step that removes a record whose normalised text came before.

    Records are hashed where they are, on all cores; the comparison happens in one place, in the
    order of the corpus, held-out records first: so the held-out copy of a text is the one kept.
    """

    applies_to: list[str]
    _hashes: HashSet = field(init=False, default_factory=HashSet)

    reason = "duplicate"

    def concerns(self, record: Record) -> bool:
        """Whether records of this kind are compared."""
        return not self.applies_to or record["kind"] in self.applies_to

    @staticmethod
    def key(record: Record) -> int:
        """The hash by which a record is compared: of its text, or of what is said in it."""
        return hash64(normalized(text_of(record)))

    def seen(self, keys: list[int]) -> list[bool]:
        """Which of the keys came before; all are known from now on."""
        return self._hashes.add(np.asarray(keys, dtype=np.uint64)).tolist()
