"""Reading <tag>…</tag> in completions: by counting, since patterns can be led across other tags."""

from __future__ import annotations


def between(text: str, tag: str) -> str | None:
    """What stands in ``<tag>…</tag>``; None unless each of both marks occurs exactly once, in order."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if text.count(opening) != 1 or text.count(closing) != 1:
        return None
    start, end = text.index(opening) + len(opening), text.index(closing)
    return text[start:end] if start <= end else None
