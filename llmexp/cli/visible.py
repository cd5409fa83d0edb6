"""Text of unknown origin on a terminal: what could steer the terminal is shown, never sent."""

from __future__ import annotations

import re

_KEPT = "\n\t"
_PICTURES = 0x2400
"""Unicode's pictures of the control characters: U+241B shows ESC."""
_DELETE, _DELETE_PICTURE = 0x7F, "␡"
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters (C0 and C1), line separators, and marks that turn the direction of writing."""


def visible(text: str) -> str:
    """``text`` with a visible sign for each character that a terminal acts on; line ends and tabs stay.

    Escape sequences lose their ESC, so they can neither move the cursor nor change colours, titles or
    the clipboard. Works on any piece of a stream: each character is replaced by itself.
    """
    return _STEERING.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _KEPT:
        return character
    if code < 0x20:
        return chr(_PICTURES + code)
    return _DELETE_PICTURE if code == _DELETE else f"<U+{code:04X}>"
