"""Readers of local files. Each streams: memory grows with the largest document, not with the corpus."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from llmexp.corpus.faults import BadData, BrokenFile, Faults
from llmexp.corpus.files import SourceFile, find_files, inner_suffix
from llmexp.corpus.records import Record, well_formed
from llmexp.corpus.source import SplitSource
from llmexp.corpus.streams import Decoded, byte_chunks, byte_lines, decode

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}


class Unusable(Exception):
    """A record cannot be used. The message says why."""


def clean(text: Any, max_bytes: int, faults: Faults) -> str:
    """A text as a corpus may hold it: well-formed, without NULs, within the limit; repairs are counted.

    Raises:
        Unusable: it is no text, or too long.
    """
    if not isinstance(text, str):
        raise Unusable("no text" if text is None else f"the text is of type {type(text).__name__}")
    text, lone = well_formed(text)
    if len(text.encode("utf-8")) > max_bytes:
        raise Unusable(f"larger than data.max_document_bytes={max_bytes}")
    nuls = text.count("\0")
    if lone:
        faults.repaired["lone_surrogates"] += lone
    if nuls:
        faults.repaired["nul_characters"] += nuls
        text = text.replace("\0", "")
    return text


def messages_of(value: Any, max_bytes: int, faults: Faults) -> list[dict[str, str]]:
    """Messages with role and content from either of the two usual forms.

    Raises:
        Unusable: they are not a list of messages.
    """
    if not isinstance(value, list) or not value:
        raise Unusable("no messages")
    messages = []
    for message in value:
        if not isinstance(message, dict):
            raise Unusable("a message is no object")
        role = message.get("role", message.get("from"))
        content = message.get("content", message.get("value"))
        role = _ROLES.get(role, role) if isinstance(role, str) else role
        if role not in ("system", "user", "assistant", "tool"):
            raise Unusable(f"a message has the role {role!r}: system, user, assistant and tool are known")
        messages.append({"role": role, "content": clean(content, max_bytes, faults)})
    return messages


@dataclass(kw_only=True)
class FileSource(SplitSource):
    """Base of the readers: walks the files, names and counts what is wrong with them."""

    path: str
    kind: str
    max_document_bytes: int
    on_bad_file: str
    max_bad_files: int
    max_bad_records: int
    _faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        self._faults = Faults(
            on_bad_file=self.on_bad_file,
            max_bad_files=self.max_bad_files,
            max_bad_records=self.max_bad_records,
        )

    @property
    def faults(self) -> Faults:
        """What was wrong so far."""
        return self._faults

    @abstractmethod
    def wanted(self) -> tuple[str, ...]:
        """Endings of the files that a folder is searched for."""

    @abstractmethod
    def read(self, file: SourceFile) -> Iterator[tuple[int, Any]]:
        """Records of one file with their numbers from 1; an `Unusable` in place of a bad one.

        Raises:
            BrokenFile: the rest of the file cannot be read.
        """

    def records(self) -> Iterator[Record]:
        """The records of all files, in the order of their names.

        Raises:
            BadData: there is no file, too much is wrong, or nothing could be read.
        """
        total = 0
        for file in find_files(self.path, self.wanted()):
            good = 0
            try:
                for number, record in self.read(file):
                    if isinstance(record, Unusable):
                        self._faults.bad_record(file.name, number, str(record))
                        continue
                    good += 1
                    yield {"id": f"{file.name}:{number}", "source": file.name, "kind": self.kind, **record}
            except BrokenFile as error:
                self._faults.bad_file(file.name, str(error), good)
            total += good
        if not total:
            raise BadData(f"data.path={self.path} holds nothing readable{self._why()}")

    def _why(self) -> str:
        wrong = [f"{bad['file']}: {bad['problem']}" for bad in self._faults.bad_files[:5]]
        wrong += [f"{r['file']}:{r['record']}: {r['problem']}" for r in self._faults.bad_records[:5]]
        return ": " + "; ".join(wrong) if wrong else ""


@dataclass(kw_only=True)
class EncodedSource(FileSource):
    """Base of the readers of text, which has an encoding."""

    encoding: str

    def decoded(self, file: SourceFile) -> Decoded:
        """The file's content with its encoding found out."""
        return Decoded(byte_chunks(file.path), self.encoding)


@dataclass(kw_only=True)
class TextFiles(EncodedSource):
    """Plain text files, cut into documents at a separator and where they are long."""

    suffixes: list[str]
    separator: str
    piece_chars: int

    def wanted(self) -> tuple[str, ...]:
        """Endings of text files."""
        return tuple(suffix.lower() for suffix in self.suffixes)

    def read(self, file: SourceFile) -> Iterator[tuple[int, Any]]:
        """The documents of one file."""
        decoded = self.decoded(file)
        kind = {"kind": "code"} if inner_suffix(file.name) == ".py" else {}
        for number, piece in enumerate(self._pieces(decoded.text()), start=1):
            if piece is None:
                limit = self.max_document_bytes
                yield number, Unusable(f"larger than data.max_document_bytes={limit}: set data.piece_chars")
                continue
            text = decoded.mend(piece)
            if text is None:
                yield number, Unusable("neither UTF-8 nor data.encoding: set data.encoding=latin-1, say")
                continue
            try:
                text = clean(text.replace("\r\n", "\n"), self.max_document_bytes, self._faults)
                yield number, {"text": text, **kind}
            except Unusable as error:
                yield number, error
        if decoded.bom:
            self._faults.repaired["byte_order_marks"] += 1

    def _pieces(self, chunks: Iterator[str]) -> Iterator[str | None]:
        """Documents from a stream of text; None where one is too large to be held."""
        pending, skipping = "", False
        for chunk in chunks:
            pending += chunk
            *whole, pending = pending.split(self.separator) if self.separator else (pending,)
            if skipping and not whole:
                # Only what may be the beginning of a separator is kept of a document that is left out.
                pending = pending[1 - len(self.separator) :] if len(self.separator) > 1 else ""
                continue
            for document in whole[1:] if skipping else whole:
                yield from self._cut(document, last=True)
            skipping = False
            *pieces, pending = self._cut(pending, last=False)
            yield from pieces
            if len(pending) > self.max_document_bytes:
                yield None
                pending, skipping = "", True
        if not skipping:
            yield from self._cut(pending, last=True)

    def _cut(self, text: str, *, last: bool) -> Iterator[str]:
        """``text`` in pieces; the last one given is what is left, and may still grow unless ``last``."""
        while self.piece_chars and len(text) > self.piece_chars:
            at = text.rfind("\n\n", 0, self.piece_chars) + 2
            if at < 2:
                at = text.rfind("\n", 0, self.piece_chars) + 1
            if at < 1:
                at = self.piece_chars
            yield text[:at]
            text = text[at:]
        if text.strip() or not last:
            yield text


@dataclass(kw_only=True)
class _Lines(EncodedSource):
    """JSON objects, one a line."""

    def wanted(self) -> tuple[str, ...]:
        """Endings of JSON-lines files."""
        return JSONL_SUFFIXES

    @abstractmethod
    def record(self, row: dict[str, Any]) -> Record:
        """The record of one object. Raises Unusable."""

    def read(self, file: SourceFile) -> Iterator[tuple[int, Any]]:
        """One record a line; blank lines are none."""
        decoded = self.decoded(file)
        for number, line in enumerate(byte_lines(decoded.utf8(), self.max_document_bytes), start=1):
            if line is not None and not line.strip():
                continue
            try:
                yield number, self.record(self._object(line))
            except Unusable as error:
                yield number, error
        if decoded.bom:
            self._faults.repaired["byte_order_marks"] += 1

    def _object(self, line: bytes | None) -> dict[str, Any]:
        if line is None:
            raise Unusable(f"larger than data.max_document_bytes={self.max_document_bytes}")
        text = decode(line, self.encoding)
        if text is None:
            raise Unusable("neither UTF-8 nor data.encoding")
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unusable(f"no JSON: {error}") from error
        if not isinstance(row, dict):
            raise Unusable("no JSON object")
        return row


@dataclass(kw_only=True)
class JsonLines(_Lines):
    """Texts, one JSON object a line."""

    text_field: str

    def record(self, row: dict[str, Any]) -> Record:
        """The text of one object."""
        if self.text_field not in row:
            raise Unusable(f"no field {self.text_field!r} (data.text_field) among {', '.join(list(row)[:8])}")
        return {"text": clean(row[self.text_field], self.max_document_bytes, self._faults)}


@dataclass(kw_only=True)
class ChatLines(_Lines):
    """Conversations or prompts, one JSON object a line; other fields travel along."""

    messages_field: str

    def record(self, row: dict[str, Any]) -> Record:
        """The messages and other fields of one object."""
        if self.messages_field not in row:
            raise Unusable(
                f"no field {self.messages_field!r} (data.messages_field) among {', '.join(list(row)[:8])}"
            )
        messages = messages_of(row[self.messages_field], self.max_document_bytes, self._faults)
        if self.kind == "chat" and all(message["role"] != "assistant" for message in messages):
            raise Unusable("no assistant message to learn from (data.kind=prompt for prompts)")
        reserved = {self.messages_field, "id", "source", "kind", "text"}
        return {"messages": messages, **{k: v for k, v in row.items() if k not in reserved}}
