"""The reward of keeping a form: given tags, each exactly once, in order, with nothing beside them."""

from __future__ import annotations

from typing import Any

from llmexp.rollout.rewards.tags import between


class Format:
    """1.0 when the completion is ``<a>…</a><b>…</b>`` for ``tags`` a, b, else 0.0.

    Only white space may stand around and between the tags, and something must stand in each. A tag
    cannot hold another: each mark occurs once and the text between two tags is empty.
    """

    def __init__(self, *, tags: list[str]) -> None:
        self.tags = tags

    def __call__(self, _record: dict[str, Any], completion: str) -> float:
        """1.0 or 0.0; the record is not read."""
        rest = completion
        for tag in self.tags:
            content = between(completion, tag)
            if content is None or not content.strip():
                return 0.0
            whole = f"<{tag}>{content}</{tag}>"
            rest = rest.lstrip()
            if not rest.startswith(whole):
                return 0.0
            rest = rest[len(whole) :]
        return float(not rest.strip())
