"""Packing: which pieces of documents make up each row of ``seq_len`` tokens.

A row is a list of pieces; a piece is a run of one document's tokens. Rows are found by number, without
reading a token: from the documents' lengths alone (and, for chats, from where the first counted token is).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from llmexp.corpus.faults import BadData
from llmexp.data.order import mix64
from llmexp.data.shards import Shards

Int64 = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Tokens ``start`` to ``end`` of document ``doc``."""

    doc: int
    start: int
    end: int


@dataclasses.dataclass
class PackingReport:
    """What packing did with the documents."""

    n_docs: int
    n_rows: int
    n_truncated: int = 0
    """Documents whose end is never seen."""
    n_dropped: int = 0
    """Documents left out since no token of theirs within ``seq_len`` counts."""


class Packing(Protocol):
    """Rows by number."""

    report: PackingReport

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, row: int) -> list[Piece]:
        """The pieces of a row, in order."""


def pack(shards: Shards, seq_len: int, packing: str) -> Packing:
    """The rows of ``shards``.

    Args:
        shards: Documents.
        seq_len: Tokens in a row at most.
        packing: ``documents``, ``best_fit`` or ``pad``.

    Raises:
        BadData: no row would hold a token that counts.
    """
    rows = Windows(shards, seq_len) if packing == "documents" else _whole(shards, seq_len, packing)
    if not len(rows) or not shards.header.n_counted:
        report = rows.report
        raise BadData(
            f"{shards.path}: no sample has a token that counts: of {report.n_docs} documents, "
            f"{report.n_dropped or report.n_docs} have none within loader.seq_len={seq_len}. "
            "Raise loader.seq_len, or look at what the chat template marks as the assistant's"
        )
    return rows


class Windows:
    """All documents one after the other, cut every ``seq_len`` tokens. Needs no index."""

    def __init__(self, shards: Shards, seq_len: int) -> None:
        self._shards = shards
        self._seq_len = seq_len
        n_rows = -(-shards.n_tokens // seq_len)
        self.report = PackingReport(n_docs=len(shards), n_rows=n_rows)

    def __len__(self) -> int:
        return self.report.n_rows

    def __getitem__(self, row: int) -> list[Piece]:
        start = row * self._seq_len
        left = min(self._seq_len, self._shards.n_tokens - start)
        doc, place = self._shards.at(start)
        pieces = []
        while left > 0:
            length = self._shards.length(doc)
            end = min(length, place + left)
            if end > place:
                pieces.append(Piece(doc, place, end))
            left -= end - place
            doc, place = doc + 1, 0
        return pieces


class Rows:
    """Rows given by arrays: row ``i`` holds the pieces ``starts[i]`` to ``starts[i + 1]``."""

    def __init__(self, starts: Int64, docs: Int64, begins: Int64, ends: Int64, report: PackingReport) -> None:
        self._starts, self._docs, self._begins, self._ends = starts, docs, begins, ends
        self.report = report

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> list[Piece]:
        some = slice(int(self._starts[row]), int(self._starts[row + 1]))
        columns = (self._docs[some], self._begins[some], self._ends[some])
        return [Piece(*piece) for piece in zip(*(column.tolist() for column in columns), strict=True)]


def _whole(shards: Shards, seq_len: int, packing: str) -> Rows:
    """Rows that begin with the beginning of a document, for ``pad`` and ``best_fit``.

    Text that is longer goes on in further rows under ``best_fit``; a conversation is truncated, since its
    later turns make no sense without the earlier ones.
    """
    lengths = shards.lengths()
    useful = (shards.first_counted() <= seq_len) & (shards.first_counted() < lengths)
    docs = np.flatnonzero(useful)
    # The token after the row's last is still a target, so a document of seq_len + 1 tokens is seen whole.
    truncates = packing == "pad" or shards.header.chat
    n_truncated = int((lengths[docs] > seq_len + 1).sum()) if truncates else 0
    report = PackingReport(len(shards), 0, n_truncated, len(shards) - len(docs))
    if truncates:
        begins, ends = np.zeros(len(docs), np.int64), np.minimum(lengths[docs], seq_len)
    else:
        docs, begins, ends = chunks(docs, lengths, seq_len)
    if packing == "pad":
        order, starts = np.arange(len(docs)), np.arange(len(docs) + 1)
    else:
        order, starts = best_fit(ends - begins, seq_len)
    report.n_rows = len(starts) - 1
    return Rows(starts, docs[order], begins[order], ends[order], report)


@functools.lru_cache(maxsize=8)  # asked for again at every held-out evaluation of a run
def whole_documents(shards: Shards, seq_len: int) -> Rows:
    """Rows in which every target of every document occurs once, for evaluation.

    Documents begin a piece and are cut only where they are longer than ``seq_len``.
    """
    lengths = shards.lengths()
    docs, begins, ends = chunks(np.flatnonzero(lengths > 1), lengths, seq_len)
    order, starts = best_fit(ends - begins, seq_len)
    report = PackingReport(n_docs=len(shards), n_rows=len(starts) - 1)
    return Rows(starts, docs[order], begins[order], ends[order], report)


def chunks(docs: Int64, lengths: Int64, seq_len: int) -> tuple[Int64, Int64, Int64]:
    """Documents cut every ``seq_len`` tokens: for each chunk its document, begin and end.

    A document's last token predicts nothing, so it needs no place of its own after a full chunk.
    """
    inputs = np.maximum(lengths[docs] - 1, 1)
    counts = -(-inputs // seq_len)
    of_doc = np.repeat(docs, counts)
    firsts = np.cumsum(counts) - counts
    begins = (np.arange(len(of_doc)) - np.repeat(firsts, counts)) * seq_len
    return of_doc, begins, np.minimum(begins + seq_len, lengths[of_doc])


def best_fit(sizes: Int64, capacity: int) -> tuple[Int64, Int64]:
    """Best-fit decreasing bin packing (Johnson 1974; for documents Ding et al. 2024).

    Items of one size come in an order fixed by a hash of their places: neighbours in a corpus are
    alike, often copies, and a row full of them would teach little more than one.

    Args:
        sizes: (n,) sizes, each from 1 to ``capacity``.
        capacity: Size of a bin.

    Returns:
        The items in the order of their bins, (n,), and where each bin starts, (n_bins + 1,).
    """
    bins: list[list[int]] = []
    free: list[int] = []  # amounts of room that some bin has, ascending
    with_room: dict[int, list[int]] = {}
    scattered = np.fromiter(map(mix64, range(len(sizes))), np.uint64, len(sizes))
    for item in np.lexsort((scattered, -sizes)).tolist():
        size = int(sizes[item])
        k = bisect.bisect_left(free, size)
        if k == len(free):
            room, at = capacity, len(bins)
            bins.append([])
        else:
            room = free[k]
            at = with_room[room].pop()
            if not with_room[room]:
                del free[k]
        bins[at].append(item)
        room -= size
        if room:
            if not with_room.get(room):
                bisect.insort(free, room)
            with_room.setdefault(room, []).append(at)
    order = np.fromiter(_flat(bins), np.int64, len(sizes))
    return order, np.cumsum([0, *map(len, bins)], dtype=np.int64)


def _flat(bins: list[list[int]]) -> Iterator[int]:
    for items in bins:
        yield from items
