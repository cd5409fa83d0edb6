"""Telling a bad loss, and remembering across restarts which steps had one."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from llmexp.track.runs import write_json

WINDOW = 64
"""Good losses that the running median is over."""

ENOUGH = 16
"""Losses before a median says anything."""

FLOOR = 1.0
"""Nats a token. Below, a batch of harder text is many times the median without anything being wrong."""


def why_bad(loss: float, grad_norm: float, recent: list[float], ratio: float | None) -> str | None:
    """What is wrong with a step's loss (nats a token) or gradient norm; None when nothing is.

    ``ratio`` times the median of the ``recent`` good losses, or times ``FLOOR`` where that is more,
    is too much; with None no loss is.
    """
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(grad_norm):
        return f"the loss is {loss:.4g} but the gradient's norm is {grad_norm}"
    if ratio is not None and len(recent) >= ENOUGH:
        median = statistics.median(recent)
        if ratio * max(median, FLOOR) < loss:
            return f"the loss is {loss:.4g}, more than {ratio:g} times the running median of {median:.4g}"
    return None


@dataclass(frozen=True)
class BadStep:
    """One bad step, as it is remembered."""

    step: int
    reason: str
    loss: float
    action: str
    """stop, skip or rollback."""
    documents: list[str]
    samples: int
    tokens: int
    counted: int
    """Of its global batch, so that passing it over later counts the same."""


class BadSteps:
    """The bad steps of a run, in a file of its own: a restart must not meet the same one unprepared."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: dict[int, BadStep] = {}
        if path.exists():
            entries = [BadStep(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
            self._steps = {entry.step: entry for entry in entries}

    def __contains__(self, step: int) -> bool:
        return step in self._steps

    def left_out(self, step: int) -> BadStep | None:
        """The record of ``step`` when it is to be passed over without computing it."""
        bad = self._steps.get(step)
        return bad if bad is not None and bad.action != "stop" else None

    @property
    def forgiven(self) -> int:
        """How many steps were skipped or rolled back over."""
        return sum(bad.action != "stop" for bad in self._steps.values())

    def add(self, bad: BadStep, *, write: bool) -> None:
        """Remember ``bad``; with ``write`` in the file too, whole or not at all."""
        self._steps[bad.step] = bad
        if not write:
            return
        write_json(self._path, [asdict(entry) for entry in self._steps.values()])

    def forget(self) -> None:
        """Begin anew: no step is known to be bad, and the file is of an earlier attempt."""
        self._steps.clear()
        self._path.unlink(missing_ok=True)
