"""Specs of the sweep group. None of their values can change what a stage produces."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.config.spec import Spec, setting


@dataclass(kw_only=True)
class SweepSpec(Spec):
    """How the jobs of ``-m`` are run."""

    max_failed: int | None = setting(
        "Failed jobs after which no further one starts; null goes on to the end.",
        default=None,
        ge=1,
        result=False,
    )


@dataclass(kw_only=True)
class GridSpec(SweepSpec):
    """Every combination of the swept values, one job after the other."""
