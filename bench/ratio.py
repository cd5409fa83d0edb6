"""Two things side by side: blocks in turn, the median ratio and its interval."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

RESAMPLES = 2000


def paired(
    a: Callable[[], object], b: Callable[[], object], blocks: int = 20, *, warm_up: int = 1
) -> tuple[float, float, float]:
    """How many times as fast ``a`` is as ``b``: each does the same work once a block.

    The two run in turn, and which comes first changes from block to block, so that what slows the
    machine for a while slows both.

    Returns:
        The median over blocks of (time of ``b``) / (time of ``a``), and its 95 % interval.
    """
    for _ in range(warm_up):
        a()
        b()
    ratios = []
    for block in range(blocks):
        order = (a, b) if block % 2 == 0 else (b, a)
        seconds = {side: seconds_of(side) for side in order}
        ratios.append(seconds[b] / seconds[a])
    return median_interval(ratios)


def seconds_of(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float, float]:
    """The median, and the 95 % percentile bootstrap interval of the median (Efron 1979)."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return statistics.median(values), medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def show(name: str, ratio: tuple[float, float, float], target: str) -> None:
    """Print one ratio as one line."""
    median, low, high = ratio
    print(f"{name}: {median:.3f} (95 % {low:.3f} to {high:.3f}), target {target}")


def fails(median: float, *, at_least: float | None = None, at_most: float | None = None) -> int:
    """Exit code 1, with a line that says why, where a median is beyond the bar that was asked for."""
    low = at_least is not None and median < at_least
    high = at_most is not None and median > at_most
    if low or high:
        print(f"FAILED: {median:.3f} is {'below ' if low else 'above '}{at_least if low else at_most}")
    return int(low or high)
