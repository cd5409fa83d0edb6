"""What a source of records is: the seam for sources of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from llmexp.corpus.faults import Faults
from llmexp.corpus.records import Record, hash01, split_key


class Source(ABC):
    """Gives records one by one and says on which side of the split each belongs.

    A source of one's own subclasses this (or `SplitSource`) as a keyword-only dataclass whose
    fields are those of its spec.
    """

    @property
    def faults(self) -> Faults:
        """Counts of what was wrong with the input; sources that read none have no problems."""
        return Faults()

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """The records: ``id``, ``source``, ``kind`` and ``text`` or ``messages``."""

    @abstractmethod
    def split(self, record: Record) -> str:
        """``train`` or ``heldout``."""

    def documents(self) -> Iterator[Record]:
        """The records that are used, at most as many as asked for."""
        yield from self.records()

    def must_hold_out(self) -> bool:
        """Whether an empty side of the split is a fault."""
        return True


@dataclass(kw_only=True)
class SplitSource(Source):
    """A source split by the hash of the text, or of a record's ``split_key``."""

    heldout: float
    max_documents: int | None

    def split(self, record: Record) -> str:
        """Held out when the hash of the record's key falls below the share: equal texts stay together."""
        return "heldout" if hash01(split_key(record)) < self.heldout else "train"

    def documents(self) -> Iterator[Record]:
        """The first ``max_documents`` records."""
        for count, record in enumerate(self.records()):
            if count == self.max_documents:
                return
            yield record

    def must_hold_out(self) -> bool:
        """Whether any share is to be held out."""
        return self.heldout > 0
