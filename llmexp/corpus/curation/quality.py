"""Rules of quality: Gopher's for prose, and those usual for source code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from llmexp.corpus.curation.steps import Removed, Step
from llmexp.corpus.records import Record, text_of
from llmexp.corpus.stdlib import parse

_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_EDGES = ".,;:!?\"'`()[]{}<>“”‘’«»…*_"
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS_AND_DIGITS = re.compile(r"[^\W_]+")
_BULLETS = ("-", "*", "•", "‣", "◦")
_ELLIPSES = ("...", "…")


@dataclass(kw_only=True)
class GopherQuality(Step):
    """The rules of Rae et al. 2021 (arXiv:2112.11446), table A1 and appendix A.1.1.

    Words are what white space separates. (datatrove's filter takes spaCy's tokens, of which
    each mark of punctuation is one: a docstring about ``f(x, y)`` then fails the rule of
    alphabetic words; it is also thirty times slower.)
    """

    min_words: int
    max_words: int
    min_word_length: float
    max_word_length: float
    max_symbol_ratio: float
    max_bullet_lines: float
    max_ellipsis_lines: float
    min_alphabetic_words: float
    min_stop_words: int

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Removes with the name of the first rule that the text breaks."""
        del counts
        reason = self._broken_rule(text_of(record))
        if reason:
            raise Removed(reason)
        return record

    def _broken_rule(self, text: str) -> str | None:
        words = text.split()
        n_words = len(words)
        if n_words < self.min_words:
            return "too few words"
        if n_words > self.max_words:
            return "too many words"
        if not words:
            return None
        length = sum(map(len, words)) / n_words
        if not self.min_word_length <= length <= self.max_word_length:
            return "mean word length"
        ellipses = sum(text.count(mark) for mark in _ELLIPSES)
        if max(text.count("#"), ellipses) > self.max_symbol_ratio * n_words:
            return "symbols"
        return self._broken_line_rule(text) or self._broken_word_rule(words)

    def _broken_line_rule(self, text: str) -> str | None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if sum(line.startswith(_BULLETS) for line in lines) > self.max_bullet_lines * len(lines):
            return "bullet lines"
        if sum(line.endswith(_ELLIPSES) for line in lines) > self.max_ellipsis_lines * len(lines):
            return "ellipsis lines"
        return None

    def _broken_word_rule(self, words: list[str]) -> str | None:
        different = Counter(words)  # each rule looks at a word once, however often it comes
        alphabetic = sum(n for word, n in different.items() if word.isalpha() or _LETTER.search(word))
        if alphabetic < self.min_alphabetic_words * len(words):
            return "words without letters"
        found = {word.strip(_EDGES).lower() for word in different} & _STOP_WORDS
        return "stop words" if len(found) < self.min_stop_words else None


_GENERATED = re.compile(
    r"""(auto[- ]?(matically[ ]+)?generated | @generated | generated[ ]+(automatically|by|from|with)\b
    | do[ ]+not[ ]+(edit|modify|change)\b | machine[- ]generated)""",
    re.IGNORECASE | re.VERBOSE,
)
_HEAD_LINES = 10


@dataclass(kw_only=True)
class CodeQuality(Step):
    """Rules for source files.

    Line lengths and alphanumeric share are those of Codex (Chen et al. 2021, arXiv:2107.03374,
    section 3.1: mean line 100, longest 1000, "a small percentage of alphanumeric characters",
    which StarCoder, arXiv:2305.06161, sets at 25 %).
    """

    parses: bool
    generated: bool
    max_line_length: int
    max_mean_line_length: float
    min_alphanumeric: float

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Removes with the name of the first rule that the code breaks."""
        del counts
        text = text_of(record)
        lines = text.splitlines() or [""]
        if max(map(len, lines)) > self.max_line_length:
            raise Removed("line length")
        if sum(map(len, lines)) > self.max_mean_line_length * len(lines):
            raise Removed("mean line length")
        if sum(map(len, _LETTERS_AND_DIGITS.findall(text))) < self.min_alphanumeric * len(text):
            raise Removed("alphanumeric share")
        if self.generated and _GENERATED.search("\n".join(lines[:_HEAD_LINES])):
            raise Removed("generated")
        if self.parses and is_python(record) and not parses(text):
            raise Removed("does not parse")
        return record


def is_python(record: Record) -> bool:
    """Whether a record is Python: by its ``language``, else by the name of its file."""
    language = record.get("language")
    if language is not None:
        return str(language).lower() == "python"
    name = str(record["id"]).rpartition(":")[0] or str(record["id"])
    return name.removesuffix(".gz").removesuffix(".zst").endswith(".py")


def parses(source: str) -> bool:
    """Whether this Python can parse the source."""
    try:
        parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
