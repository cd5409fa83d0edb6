"""Token shards on disk: documents as runs of ids, with the mask of what counts where one is needed.

``<split>/NNNNN.tokens`` holds little-endian ids, ``.docs`` the token at which each document begins and the
end of the last (uint64), ``.mask`` one byte a token, ``.names`` a JSON string a document; ``header.json``
says how wide an id is and how much there is.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from llmexp.corpus.faults import BadData

SHARD_TOKENS = 1 << 27
"""A file is closed after the document that reaches this many tokens."""


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The narrowest of uint16 and uint32 that holds every id below ``vocab_size``."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


@dataclasses.dataclass(kw_only=True)
class Header:
    """What ``header.json`` of a split says."""

    dtype: str
    """``uint16`` or ``uint32``."""
    vocab_size: int
    """Ids are below it; added tokens are included."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    chat: bool
    """Whether each token has a mask."""
    n_docs: int = 0
    n_tokens: int = 0
    n_counted: int = 0
    """Targets that count: a document's first token is no target."""
    n_bytes: int = 0
    """UTF-8 bytes of the text that the counted tokens stand for."""
    shards: list[int] = dataclasses.field(default_factory=list)
    """Tokens in each file."""


class ShardWriter:
    """Writes one split. Use it as a context manager; the header is written at its end."""

    def __init__(
        self,
        folder: Path,
        *,
        vocab_size: int,
        tokenizer: str,
        chat: bool,
        shard_tokens: int = SHARD_TOKENS,
    ) -> None:
        """Create ``folder``, which must not hold shards yet.

        Args:
            folder: The folder of the split.
            vocab_size: Every id must be below it.
            tokenizer: Fingerprint of the tokenizer.
            chat: Store a mask for each token.
            shard_tokens: A new file begins once one holds so many tokens.
        """
        folder.mkdir(parents=True, exist_ok=True)
        dtype = dtype_for(vocab_size)
        self.header = Header(dtype=dtype.name, vocab_size=vocab_size, tokenizer=tokenizer, chat=chat)
        self._folder = folder
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._files: dict[str, BinaryIO] = {}
        self._in_shard = 0

    def write(
        self,
        ids: npt.ArrayLike,
        *,
        name: str = "",
        n_bytes: int = 0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Append a document: its (n,) ids and, for chats, (n,) mask; see `write_many`."""
        ids = np.asarray(ids, dtype=np.int64)
        self.write_many(ids, lengths=[len(ids)], names=[name], n_bytes=n_bytes, mask=mask)

    def write_many(
        self,
        ids: npt.ArrayLike,
        *,
        lengths: npt.ArrayLike,
        names: Sequence[str],
        n_bytes: int,
        mask: npt.ArrayLike | None,
    ) -> None:
        """Append documents.

        Args:
            ids: (n,) ids of all of them, one after the other.
            lengths: (n_docs,) ids of each.
            names: What error reports call each.
            n_bytes: UTF-8 bytes of the text that the counted tokens stand for.
            mask: (n,) whether each token counts as a target; needed for chats, refused for others.

        Raises:
            ValueError: an id is outside the vocabulary, or lengths or mask do not fit.
        """
        ids, lengths = np.asarray(ids), np.asarray(lengths, dtype=np.int64)
        counted = np.ones(len(ids), np.uint8) if mask is None else np.asarray(mask, dtype=np.uint8)
        if int(lengths.sum()) != len(ids) or len(names) != len(lengths) or counted.shape != ids.shape:
            raise ValueError(f"{len(ids)} ids do not fit their lengths, names or mask")
        if (mask is not None) != self.header.chat:
            raise ValueError("shards of chats hold masks, and only they")
        self._check_range(ids, lengths, names)
        if not self._files or self._in_shard >= self._shard_tokens:
            self._next_file()
        self._files["tokens"].write(ids.astype(self._dtype).tobytes())
        if mask is not None:
            self._files["mask"].write(counted.tobytes())
        self._files["names"].write("".join(json.dumps(name) + "\n" for name in names).encode())
        self._files["docs"].write((self._in_shard + np.cumsum(lengths)).astype("<u8").tobytes())
        self._in_shard += len(ids)
        self.header.n_docs += len(lengths)
        self.header.n_tokens += len(ids)
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        self.header.n_counted += int(counted.sum()) - int(counted[starts].sum())  # nothing predicts those
        self.header.n_bytes += n_bytes

    def _check_range(
        self, ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64], names: Sequence[str]
    ) -> None:
        """A narrower type would wrap an id that is too large into another one."""
        if not ids.size or 0 <= ids.min() <= ids.max() < self.header.vocab_size:
            return
        bad = int(np.flatnonzero((ids < 0) | (ids >= self.header.vocab_size))[0])
        doc = int(np.searchsorted(np.cumsum(lengths), bad, side="right"))
        raise ValueError(
            f"document {names[doc]!r}: id {ids[bad]} is outside the vocabulary of {self.header.vocab_size}"
        )

    def _next_file(self) -> None:
        self._close_files()
        stem = self._folder / f"{len(self.header.shards):05d}"
        kinds = ["tokens", "docs", "names"] + (["mask"] if self.header.chat else [])
        self._files = {kind: open(f"{stem}.{kind}", "xb") for kind in kinds}  # noqa: SIM115
        self._files["docs"].write(np.uint64(0).tobytes())
        self._in_shard = 0

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        if self._files:
            self.header.shards.append(self._in_shard)
        self._files = {}

    def close(self) -> None:
        """Close the files and write the header."""
        self._close_files()
        text = json.dumps(dataclasses.asdict(self.header), indent=1)
        (self._folder / "header.json").write_text(text + "\n", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without its header a split cannot be read, so what an error cut short is never taken for whole.
        self._close_files() if error else self.close()


class Shards:
    """One split of token shards, memory-mapped."""

    def __init__(self, path: Path | str, split: str) -> None:
        """Open the split ``split`` of the artifact at ``path``.

        Raises:
            BadData: there is no such split, or a file has not the size that the header says.
        """
        self.path = Path(path) / split
        file = self.path / "header.json"
        if not file.is_file():
            raise BadData(f"{path} holds no token shards of the split {split}: there is no {file}")
        self.header = Header(**json.loads(file.read_text(encoding="utf-8")))
        self.dtype = np.dtype(self.header.dtype).newbyteorder("<")
        self._stems = [self.path / f"{k:05d}" for k in range(len(self.header.shards))]
        sizes = self.header.shards
        self._docs = [self._map(stem, "docs", np.dtype("<u8"), None) for stem in self._stems]
        self._tokens = [
            self._map(stem, "tokens", self.dtype, n) for stem, n in zip(self._stems, sizes, strict=True)
        ]
        self._masks = [
            self._map(stem, "mask", np.dtype("u1"), n) if self.header.chat else None
            for stem, n in zip(self._stems, sizes, strict=True)
        ]
        self._doc_ends = list(itertools.accumulate(len(docs) - 1 for docs in self._docs))
        self._token_ends = list(itertools.accumulate(sizes))

    def __len__(self) -> int:
        """Number of documents."""
        return self.header.n_docs

    @property
    def n_tokens(self) -> int:
        """Tokens in all documents."""
        return self.header.n_tokens

    def lengths(self) -> npt.NDArray[np.int64]:
        """(n_docs,) int64: tokens in each document."""
        parts = [np.diff(docs.astype(np.int64)) for docs in self._docs]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def length(self, doc: int) -> int:
        """Tokens in a document."""
        k, place = self._locate(doc)
        return int(self._docs[k][place + 1] - self._docs[k][place])

    def tokens(self, doc: int, start: int = 0, end: int | None = None) -> npt.NDArray[Any]:
        """Ids ``start`` to ``end`` of a document, (n,) of the shards' dtype, a view of the file."""
        k, a, b = self._range(doc, start, end)
        return self._tokens[k][a:b]

    def mask(self, doc: int, start: int = 0, end: int | None = None) -> npt.NDArray[np.bool_]:
        """Which of these tokens count as targets, (n,) bool; all of them where no mask is stored."""
        k, a, b = self._range(doc, start, end)
        stored = self._masks[k]
        return np.ones(b - a, np.bool_) if stored is None else stored[a:b].view(np.bool_)

    def at(self, token: int) -> tuple[int, int]:
        """The document that holds a token, counted over all documents, and the token's place in it."""
        k = bisect.bisect_right(self._token_ends, token)
        within = token - (self._token_ends[k] - self.header.shards[k])
        place = int(np.searchsorted(self._docs[k], np.uint64(within), side="right")) - 1
        doc = place + self._doc_ends[k] - (len(self._docs[k]) - 1)
        return doc, within - int(self._docs[k][place])

    def first_counted(self) -> npt.NDArray[np.int64]:
        """(n_docs,) int64: place of each document's first counted target; its length where there is none.

        The first token of a document is no target: nothing stands before it.
        """
        lengths = self.lengths()
        if not self.header.chat:
            return np.minimum(1, lengths)
        firsts = [
            _first_counted(docs.astype(np.int64), stored)
            for docs, stored in zip(self._docs, self._masks, strict=True)
            if stored is not None
        ]
        return np.minimum(np.concatenate(firsts), lengths) if firsts else lengths

    def name(self, doc: int) -> str:
        """What the corpus calls a document; read from the start of a file, for error reports."""
        k, place = self._locate(doc)
        with open(f"{self._stems[k]}.names", "rb") as file:
            return json.loads(next(itertools.islice(file, place, None)))

    def _locate(self, doc: int) -> tuple[int, int]:
        k = bisect.bisect_right(self._doc_ends, doc)
        return k, doc - (self._doc_ends[k] - (len(self._docs[k]) - 1))

    def _range(self, doc: int, start: int, end: int | None) -> tuple[int, int, int]:
        k, place = self._locate(doc)
        first, last = int(self._docs[k][place]), int(self._docs[k][place + 1])
        return k, first + start, last if end is None else min(first + end, last)

    def _map(self, stem: Path, kind: str, dtype: np.dtype[Any], n: int | None) -> npt.NDArray[Any]:
        file = Path(f"{stem}.{kind}")
        size = file.stat().st_size if file.is_file() else -1
        if size < 0 or (n is not None and size != n * dtype.itemsize):
            raise BadData(f"{file} is damaged: {max(size, 0)} bytes, not what header.json says")
        return np.memmap(file, dtype, mode="r") if size else np.zeros(0, dtype)


def _first_counted(docs: npt.NDArray[np.int64], mask: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Place of the first counted target of each document of one file; past the end if none."""
    counted = np.flatnonzero(mask)
    begins = docs[:-1]
    after = np.searchsorted(counted, begins + 1)
    found = np.append(counted, np.iinfo(np.int64).max)[after]
    return found - begins


def as_list(shards: Shards | Sequence[Shards]) -> list[Shards]:
    """One or several inputs of shards as a list."""
    return [shards] if isinstance(shards, Shards) else list(shards)
