"""What a reward is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reward = Callable[[dict[str, Any], str], float]
"""(record of the prompt, completion text without special tokens) -> reward, finite."""
