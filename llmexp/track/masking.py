"""Masks that keep secrets out of everything that is written or sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Mask = Callable[[str], str]

HIDDEN = "***"
SHORTEST_WITHIN = 6
"""Secrets shorter than this hide only a text that equals them: within longer ones they match by chance."""


def mask_of(secrets: Iterable[str]) -> Mask:
    """A mask that replaces each of ``secrets`` by ``***`` wherever it stands in a text."""
    known = {secret for secret in secrets if secret}
    long = sorted((s for s in known if len(s) >= SHORTEST_WITHIN), key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(s) for s in long)) if long else None

    def mask(text: str) -> str:
        if text in known:
            return HIDDEN
        return pattern.sub(HIDDEN, text) if pattern else text

    return mask


def masked(value: Any, mask: Mask) -> Any:
    """A JSON value with the mask laid over each of its strings, keys included."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(str(k)): masked(v, mask) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(v, mask) for v in value]
    return value


def without_credentials(text: str) -> str:
    """A text with the user and password of every URL in it replaced."""
    return re.sub(r"(\w+://)[^/\s]+@", rf"\1{HIDDEN}@", text)
