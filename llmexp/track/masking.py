"""Masks that keep secrets out of everything that is written or sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

Mask = Callable[[str], str]

HIDDEN = "***"
ADDRESS = re.compile(r"(\w+\\?://)([^/\s]+)@")
"""An address, with the user and password before the last @ of its host's part.

Hydra writes a sweep's lines with a backslash before each colon, and before each equals sign."""

QUERY = re.compile(
    r"([?&](?:[\w-]*(?:passw(?:or)?d|passphrase|pwd|token|secret|signature|credential|(?:api|access)[_-]?key)"
    r"|(?:[\w-]*[_-])?(?:auth|sig|key))\\?=)"
    r"([^&#\s]*[^&#\s'\"\])}>,])",
    re.IGNORECASE,
)
"""A password or key among the parameters of an address; ``monkey`` and the like are none."""


def mask_of(secrets: Iterable[str]) -> Mask:
    """A mask that replaces each of ``secrets``, and the credentials of every address, by ``***``."""
    longest_first = sorted(set(secrets) - {""}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def mask(text: str) -> str:
        return without_credentials(pattern.sub(HIDDEN, text) if pattern else text)

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


def hidden(value: Any, paths: Collection[str], at: str = "") -> Any:
    """A JSON value with ``***`` at each of the dotted ``paths``; what is null or empty is no secret."""
    if at in paths and value not in (None, ""):
        return HIDDEN
    inner = f"{at}." if at else ""
    if isinstance(value, dict):
        return {k: hidden(v, paths, f"{inner}{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [hidden(v, paths, f"{inner}{i}") for i, v in enumerate(value)]
    return value


def without_credentials(text: str) -> str:
    """A text with the passwords and keys of every URL in it replaced; an interpolation is none."""
    text = ADDRESS.sub(lambda m: m[0] if "${" in m[2] else f"{m[1]}{HIDDEN}@", text)
    return QUERY.sub(lambda m: m[0] if "${" in m[2] else m[1] + HIDDEN, text)
