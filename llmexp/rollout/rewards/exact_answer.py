"""The reward of being right: the completion states the record's ``answer`` and nothing else."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from llmexp.rollout.rewards.tags import between

_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?")
_LONGEST = 400
"""Characters; nothing longer is a number that somebody meant, and no reward should spend time on it."""


class ExactAnswer:
    """1.0 when the completion is the record's answer, else 0.0.

    Strict: the whole completion (or the whole of the one ``tag``) is the answer, but for white
    space around it. Numbers are compared as decimals, so 4, +4 and 4.0 are one answer. Others are
    compared as text, also those with leading zeros: digits written from the lowest up may end in them.
    A number in the middle of prose earns nothing: who lists many numbers would be right.
    """

    def __init__(self, *, tag: str) -> None:
        self.tag = tag

    def __call__(self, record: dict[str, Any], completion: str) -> float:
        """1.0 or 0.0.

        Raises:
            ValueError: the record has no ``answer``.
        """
        if record.get("answer") is None:
            raise ValueError(f"record {record.get('id', '?')} has no `answer` for the reward exact_answer")
        given = between(completion, self.tag) if self.tag else completion
        if given is None:
            return 0.0
        return float(same_answer(given.strip(), str(record["answer"]).strip()))


def same_answer(given: str, expected: str) -> bool:
    """Whether two stripped texts are the same number, or the same text where ``expected`` is no number."""
    number = _number(expected)
    return given == expected if number is None else _number(given) == number


def _number(text: str) -> Decimal | None:
    return Decimal(text) if len(text) <= _LONGEST and _NUMBER.fullmatch(text) else None
