"""Curation steps that change or remove one record at a time, and the protocol they follow."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Any

from llmexp.corpus.records import Record, map_text, well_formed

_WHITE: dict[int, None] = {ord("\n"): None, ord("\t"): None}


class Removed(Exception):
    """A step removes the record. The message is the reason, in a word or two: reasons are counted."""


@dataclass(kw_only=True)
class Step(ABC):
    """A curation step; the seam for steps of one's own.

    A step sees one record and nothing else, so that records can be treated on all cores. Steps
    that must compare records build a `llmexp.corpus.curation.seen.SeenTexts`.
    """

    applies_to: list[str]

    def concerns(self, record: Record) -> bool:
        """Whether the step is for records of this kind."""
        return not self.applies_to or record["kind"] in self.applies_to

    @abstractmethod
    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """The record as it goes on; ``counts`` takes what the step wants reported.

        Raises:
            Removed: the record does not go on.
        """


@dataclass(kw_only=True)
class RepairEncoding(Step):
    """ftfy's repair of text decoded in the wrong encoding, and of control characters.

    What is a matter of taste or of meaning (curly quotes, ligatures, HTML entities, character
    width) is left alone.
    """

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Counts ``repaired`` records."""
        mended = map_text(record, _mend)
        if mended != record:
            counts["repaired"] += 1
        return mended


def _mend(text: str) -> str:
    # Nothing that ftfy is asked for here occurs in printable ASCII, which most text is.
    if text.isascii() and not _has_controls(text):
        return text
    import ftfy

    return ftfy.fix_text(text, _ftfy_config())


def _has_controls(text: str) -> bool:
    return not text.translate(_WHITE).isprintable()


def _ftfy_config() -> Any:
    import ftfy

    return ftfy.TextFixerConfig(
        unescape_html=False,
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        normalization=None,
        explain=False,
    )


@dataclass(kw_only=True)
class NormalizeUnicode(Step):
    """Makes every text well-formed and brings it into one normalisation form."""

    form: str

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Counts ``lone_surrogates`` replaced and ``normalized`` records."""

        def change(text: str) -> str:
            if text.isascii():
                return text
            text, lone = well_formed(text)
            counts["lone_surrogates"] += lone
            return text if self.form == "none" else unicodedata.normalize(self.form, text)  # type: ignore[arg-type]

        changed = map_text(record, change)
        if changed != record:
            counts["normalized"] += 1
        return changed


@dataclass(kw_only=True)
class DropEmpty(Step):
    """Removes records that hold nothing but white space."""

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Removes as ``empty``."""
        del counts
        empty = not record["text"].strip() if "text" in record else not _said(record)
        if empty:
            raise Removed("empty")
        return record


def _said(record: Record) -> bool:
    return any(message["content"].strip() for message in record["messages"])
