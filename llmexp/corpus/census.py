"""Counts of documents and characters, by split, kind and source."""

from __future__ import annotations

from collections import Counter
from typing import Any

from llmexp.corpus.records import Record, text_of

_SOURCES = 100
"""Sources told apart; a folder may hold a million files."""


class Census:
    """Counts the records of a corpus as they pass.

    Attributes:
        documents, characters: by split.
        total: documents in all.
    """

    def __init__(self) -> None:
        self.documents: Counter[str] = Counter()
        self.characters: Counter[str] = Counter()
        self._kinds: dict[str, Counter[str]] = {}
        self._sources: dict[str, Counter[str]] = {}

    @property
    def total(self) -> int:
        """Documents counted so far."""
        return self.documents.total()

    def add(self, split: str, record: Record) -> None:
        """Count one record."""
        size = len(text_of(record))
        self.documents[split] += 1
        self.characters[split] += size
        source = record["source"]
        if source not in self._sources and len(self._sources) >= _SOURCES:
            source = "(others)"
        for table, name in ((self._kinds, record["kind"]), (self._sources, source)):
            table.setdefault(name, Counter()).update(documents=1, characters=size)

    def summary(self) -> dict[str, Any]:
        """The counts as JSON data: ``documents`` and ``characters`` by split, ``kinds``, ``sources``."""
        return {
            "documents": {split: self.documents[split] for split in ("train", "heldout")},
            "characters": {split: self.characters[split] for split in ("train", "heldout")},
            "kinds": {name: dict(counts) for name, counts in sorted(self._kinds.items())},
            "sources": {name: dict(counts) for name, counts in sorted(self._sources.items())},
        }
