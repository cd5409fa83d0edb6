"""Records: their text, their split, and the files that hold them.

A record is a dict with ``id``, ``source``, ``kind`` (prose, code, chat, prompt) and either ``text`` or
``messages`` (a list of ``role`` and ``content``); other fields travel along.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from llmexp.corpus.faults import BadData, BrokenFile
from llmexp.corpus.streams import byte_chunks, byte_lines

SPLITS = ("train", "heldout")
Record = dict[str, Any]

_SHARD_BYTES = 64 * 2**20
_ZSTD_LEVEL = 3
_SURROGATE = re.compile("[\ud800-\udfff]")


def text_of(record: Record) -> str:
    """The text of a record; of a conversation the roles and contents, a line each."""
    if "text" in record:
        return record["text"]
    return "\n".join(f"{m['role']}: {m['content']}" for m in record["messages"])


def map_text(record: Record, change: Callable[[str], str]) -> Record:
    """The record with ``change`` applied to its text, or to the content of each message."""
    if "text" in record:
        return {**record, "text": change(record["text"])}
    messages = [{**m, "content": change(m["content"])} for m in record["messages"]]
    return {**record, "messages": messages}


def normalized(text: str) -> str:
    """The text as it is compared: composed characters (NFC), each run of white space one space."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def hash64(text: str) -> int:
    """The first 64 bits of BLAKE2b of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def hash01(text: str) -> float:
    """A number in [0, 1), fixed by the text alone."""
    return (hash64(text) >> 11) / 2**53


def split_key(record: Record) -> str:
    """What a record is split by: its own key if it has one, else its text."""
    return record.get("split_key") or normalized(text_of(record))


def well_formed(text: str) -> tuple[str, int]:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD, and how many were lone.

    ``json.loads`` lets unpaired escapes through; such a string has no UTF-8.
    """
    try:
        text.encode("utf-8")
        return text, 0
    except UnicodeEncodeError:
        # UTF-16 is where a pair means one character; pairs join there and lone ones stay.
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return _SURROGATE.subn("\ufffd", joined)


class _Shards:
    """Numbered files of one split; a new one begins after 64 MiB of text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file: Any = None
        self._room = 0
        self._count = 0

    def write(self, line: bytes) -> None:
        if self._file is None or self._room < len(line):
            self._next()
        self._file.write(line)
        self._room -= len(line)

    def _next(self) -> None:
        import zstandard

        self.close()
        raw = open(self._folder / f"{self._count:05d}.jsonl.zst", "xb")  # noqa: SIM115 - closed by its writer
        self._file = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).stream_writer(raw)
        self._room = _SHARD_BYTES
        self._count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class CorpusWriter:
    """Writes records into ``<out>/<split>/NNNNN.jsonl.zst``; equal records give equal bytes.

    Use it as a context manager.
    """

    def __init__(self, out: Path, splits: tuple[str, ...] = SPLITS) -> None:
        self._out = Path(out)
        self._shards = {split: _Shards(self._out / split) for split in splits}

    def write(self, split: str, record: Record) -> None:
        """Append one record to a split."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        try:
            data = line.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate in a field beside the text: keep it as an escape
            data = json.dumps(record, separators=(",", ":")).encode("ascii")
        self._shards[split].write(data + b"\n")

    def statistics(self, data: dict[str, Any]) -> None:
        """Write ``stats.json``."""
        text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        (self._out / "stats.json").write_text(text, encoding="utf-8")

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        for shards in self._shards.values():
            shards.close()


def read_records(path: str | os.PathLike[str], split: str) -> Iterator[Record]:
    """The records of one split of a corpus (``train``, ``heldout``, ``removed``), in order, as a stream.

    Raises:
        BadData: the folder is no corpus, or a file in it is damaged.
    """
    folder = Path(path) / split
    if not folder.is_dir():
        raise BadData(f"{path} is no corpus: it has no folder {split}/")
    for file in sorted(folder.glob("*.jsonl*")):
        lines = byte_lines(byte_chunks(file), limit=2**40)
        try:
            for line in lines:
                yield json.loads(line or b"")
        except (BrokenFile, ValueError) as error:
            raise BadData(f"{file} is damaged: {error}") from error


def read_statistics(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ``stats.json`` of a corpus; empty where it has none."""
    file = Path(path) / "stats.json"
    return json.loads(file.read_bytes()) if file.is_file() else {}
