"""Specs of objectives. Imports no torch."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from llmexp.config.spec import Spec, setting


@dataclasses.dataclass(kw_only=True)
class GRPOSpec(Spec):
    """Group relative policy optimisation. Built with the rollouts' ``temperature``."""

    builds: ClassVar[str] = "llmexp.objective.grpo:GRPO"

    clip_low: float = setting("The policy's ratio is clipped below at 1 less this.", default=0.2, gt=0, le=1)
    clip_high: float = setting("The policy's ratio is clipped above at 1 plus this.", default=0.2, gt=0)
    beta: float = setting(
        "Weight of the divergence from the model that training starts from; 0 needs no such model.",
        default=0.0,
        ge=0,
        unit="reward a nat",
    )
    mask_truncated: bool = setting("Learn nothing from completions that were cut off.", default=False)
    scale_by_std: bool = setting(
        "Divide advantages by the group's standard deviation; off: by nothing (Dr. GRPO).", default=True
    )
