"""The `curation` group: what is kept of a corpus, and how it is cleaned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from llmexp.config.spec import Mistake, Spec, setting
from llmexp.corpus.config import KINDS


@dataclass(kw_only=True)
class StepSpec(Spec):
    """One curation step. It builds an object with ``apply(record, counts)``, see `curation.steps`."""

    applies_to: list[str] = setting("Kinds of record that it is for; empty = all.", default=[])

    def check(self) -> Iterator[Mistake]:
        """The kinds exist."""
        unknown = [kind for kind in self.applies_to if kind not in KINDS]
        if unknown:
            yield Mistake("applies_to", f"{unknown} is no kind of record", f"choose among {', '.join(KINDS)}")


@dataclass(kw_only=True)
class EncodingSpec(StepSpec):
    """Repair text that was decoded wrongly (ftfy); quotes, ligatures and HTML stay as they are."""

    builds: ClassVar[str] = "llmexp.corpus.curation.steps:RepairEncoding"


@dataclass(kw_only=True)
class UnicodeSpec(StepSpec):
    """Join surrogate pairs, replace lone surrogates by U+FFFD, normalise."""

    builds: ClassVar[str] = "llmexp.corpus.curation.steps:NormalizeUnicode"
    form: str = setting("Unicode normalisation form.", default="NFC", choices=("NFC", "NFKC", "none"))


@dataclass(kw_only=True)
class EmptySpec(StepSpec):
    """Remove records without text."""

    builds: ClassVar[str] = "llmexp.corpus.curation.steps:DropEmpty"


@dataclass(kw_only=True)
class ExactDuplicatesSpec(StepSpec):
    """Remove records whose text, but for white space, was seen before; the held-out copy is the one kept."""

    builds: ClassVar[str] = "llmexp.corpus.curation.seen:SeenTexts"


@dataclass(kw_only=True)
class GopherQualitySpec(StepSpec):
    """Quality rules of Gopher (Rae et al. 2021, arXiv:2112.11446, table A1)."""

    builds: ClassVar[str] = "llmexp.corpus.curation.quality:GopherQuality"
    min_words: int = setting("Fewest words.", default=50, unit="words", ge=0)
    max_words: int = setting("Most words.", default=100_000, unit="words", ge=1)
    min_word_length: float = setting("Smallest mean word length.", default=3.0, unit="characters", ge=0)
    max_word_length: float = setting("Largest mean word length.", default=10.0, unit="characters", ge=0)
    max_symbol_ratio: float = setting("Most hash signs, or ellipses, a word.", default=0.1, ge=0)
    max_bullet_lines: float = setting("Largest share of lines that begin with a bullet.", default=0.9, ge=0)
    max_ellipsis_lines: float = setting("Largest share of lines ending with an ellipsis.", default=0.3, ge=0)
    min_alphabetic_words: float = setting(
        "Smallest share of words with a letter in them.", default=0.8, ge=0, le=1
    )
    min_stop_words: int = setting(
        "Fewest different words among: the be to of and that have with.", default=2, ge=0, le=8
    )

    def check(self) -> Iterator[Mistake]:
        """Ranges are not empty."""
        yield from super().check()
        if self.max_words < self.min_words:
            yield Mistake("max_words", f"{self.max_words} is below min_words = {self.min_words}", "raise it")
        if self.max_word_length < self.min_word_length:
            yield Mistake("max_word_length", "is below min_word_length", "raise it")


@dataclass(kw_only=True)
class DatatroveFilterSpec(StepSpec):
    """A filter of datatrove, with its own thresholds."""

    builds: ClassVar[str] = "llmexp.corpus.curation.datatrove_filter:DatatroveFilter"
    needs_modules: ClassVar[tuple[str, ...]] = ("datatrove", "orjson", "spacy")
    extra: ClassVar[str] = "web"
    filter: str = setting(
        "Which: Gopher's rules of repetition, FineWeb's of lines and lists, C4's (which also drops lines).",
        default="gopher_repetition",
        choices=("gopher_repetition", "fineweb_quality", "c4_quality"),
    )


@dataclass(kw_only=True)
class CodeQualitySpec(StepSpec):
    """Rules for source code; line lengths and letters as for Codex (Chen et al. 2021, section 3.1)."""

    builds: ClassVar[str] = "llmexp.corpus.curation.quality:CodeQuality"
    parses: bool = setting("Remove Python that this Python cannot parse.", default=True)
    generated: bool = setting("Remove code whose head says that a program wrote it.", default=True)
    max_line_length: int = setting("Longest line.", default=1000, unit="characters", ge=1)
    max_mean_line_length: float = setting("Largest mean line length.", default=100.0, unit="characters", gt=0)
    min_alphanumeric: float = setting("Smallest share of letters and digits.", default=0.25, ge=0, le=1)


@dataclass(kw_only=True)
class PiiSpec(StepSpec):
    """Replace personal data by a word in angle brackets: <EMAIL>, <IP_ADDRESS>, <PHONE_NUMBER>."""

    builds: ClassVar[str] = "llmexp.corpus.curation.pii:MaskPii"
    kinds: list[str] = setting("What is replaced: email ip phone.", default=["email", "ip", "phone"])

    def check(self) -> Iterator[Mistake]:
        """The kinds exist."""
        yield from super().check()
        unknown = [kind for kind in self.kinds if kind not in ("email", "ip", "phone")]
        if unknown:
            yield Mistake("kinds", f"{unknown} cannot be masked", "choose among email, ip, phone")


@dataclass(kw_only=True)
class CurationSpec(Spec):
    """Steps by name, in the order in which they run."""

    steps: dict[str, StepSpec] = setting("The steps, by name.", default={})
    order: list[str] = setting("Names of the steps in the order they run; empty = as written.", default=[])

    def __post_init__(self) -> None:
        # The order counts for the result, and a fingerprint does not see the order of a mapping's keys.
        if not self.order and isinstance(self.steps, dict):
            self.order = list(self.steps)

    def check(self) -> Iterator[Mistake]:
        """Each step runs exactly once."""
        if sorted(self.order) != sorted(self.steps):
            yield Mistake(
                "order",
                f"{self.order} does not name each of {list(self.steps)} once",
                "name every step once, or leave order out; ~curation.steps.NAME drops a step",
            )
