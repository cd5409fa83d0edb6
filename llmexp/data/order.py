"""The data order: which row is sample ``i``, as a pure function of sizes, mixture, seed and ``i``.

Nothing is shuffled in memory: a position within an epoch is sent through a keyed bijection.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from llmexp.data.config import MIXTURE_BLOCK

_MASK64 = (1 << 64) - 1
_ROUNDS = 6


def mix64(x: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): 64 bits to 64 bits, one to one."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def key_of(*parts: int) -> int:
    """A 64-bit key from integers, in their order."""
    key = 0
    for part in parts:
        key = mix64(key ^ (part & _MASK64))
    return key


class Permutation:
    """A pseudo-random permutation of ``range(n)``, computed one value at a time.

    A balanced Feistel network (Luby and Rackoff 1988) over the next even number of bits, walked along
    its cycle until the value is below ``n`` (Black and Rogaway 2002): less than four steps expected.
    """

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._low = (1 << self._half) - 1
        self._keys = [key_of(key, r) for r in range(_ROUNDS)]

    def __call__(self, position: int) -> int:
        """The value at ``position``; both in ``range(n)``."""
        value = position
        while True:
            value = self._step(value)
            if value < self._n:
                return value

    def _step(self, value: int) -> int:
        left, right = value >> self._half, value & self._low
        for key in self._keys:
            left, right = right, left ^ (mix64(right ^ key) & self._low)
        return left << self._half | right


class DataOrder:
    """Which row of which source is each sample of an endless sequence.

    Without weights every row of every source comes once an epoch, in an order of the epoch's own. With
    weights, every block of 4,096 samples holds each source in proportion, and each source has its epochs.
    """

    def __init__(self, rows: Sequence[int], weights: Sequence[float] = (), *, seed: int) -> None:
        """Take the number of rows of each source, and a weight for each, or none at all.

        Raises:
            ValueError: weights do not fit the sources, or a source with a weight has no rows.
        """
        if weights and len(weights) != len(rows):
            raise ValueError(f"loader.mixture has {len(weights)} weights for {len(rows)} inputs of shards")
        if not sum(rows) or any(w > 0 and not n for w, n in zip(weights, rows, strict=False)):
            raise ValueError("an input of shards has no samples")
        self._rows = list(rows)
        self._seed = seed
        self._ends = list(itertools.accumulate(rows))
        self._share = block_shares(weights) if weights else []
        self._share_ends = list(itertools.accumulate(self._share))
        self._permutations: dict[tuple[int, int, int], Permutation] = {}

    def __getitem__(self, sample: int) -> tuple[int, int]:
        """Source and row of a sample."""
        if not self._share:
            total = self._ends[-1]
            epoch, position = divmod(sample, total)
            row = self._permutation(0, epoch, total)(position)
            source = bisect.bisect_right(self._ends, row)
            return source, row - (self._ends[source] - self._rows[source])
        block, position = divmod(sample, MIXTURE_BLOCK)
        slot = self._permutation(0, block, MIXTURE_BLOCK)(position)
        source = bisect.bisect_right(self._share_ends, slot)
        share = self._share[source]
        place = block * share + slot - (self._share_ends[source] - share)
        epoch, position = divmod(place, self._rows[source])
        return source, self._permutation(1 + source, epoch, self._rows[source])(position)

    def _permutation(self, stream: int, epoch: int, n: int) -> Permutation:
        name = (stream, epoch, n)
        if name not in self._permutations:
            if len(self._permutations) > 64:
                self._permutations.clear()
            self._permutations[name] = Permutation(n, key_of(self._seed, stream, epoch))
        return self._permutations[name]


def block_shares(weights: Sequence[float]) -> list[int]:
    """Samples of each source in a block of the mixture, largest remainders first; their sum is the block."""
    total = sum(weights)
    exact = [MIXTURE_BLOCK * w / total for w in weights]
    shares = [int(x) for x in exact]
    left = MIXTURE_BLOCK - sum(shares)
    for k in sorted(range(len(exact)), key=lambda k: shares[k] - exact[k])[:left]:
        shares[k] += 1
    return shares
