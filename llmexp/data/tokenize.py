"""The work of the stage that turns a corpus into token shards."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llmexp.corpus.faults import BadData, BrokenFile
from llmexp.corpus.records import SPLITS, read_records
from llmexp.corpus.streams import byte_chunks, byte_lines
from llmexp.corpus.workers import Workers
from llmexp.data.shards import ShardWriter
from llmexp.store.machine import cores
from llmexp.tokenizer.chat import ChatError
from llmexp.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llmexp.track.progress import Progress

BATCH_BYTES = 1 << 20
"""Lines that are encoded together."""
PROCESSES_FROM = 8 << 20
"""Compressed bytes of a corpus from which processes, and not threads, repay their start."""
LISTED = 20
"""Records that could not be used are counted without end, and named up to this many."""

NO_COUNTED_TOKEN = "has no token that counts"


@dataclass
class Encoded:
    """Some documents, encoded."""

    ids: npt.NDArray[np.uint32]
    """(n,) of all documents."""
    lengths: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    n_bytes: int = 0
    mask: npt.NDArray[np.uint8] | None = None
    """(n,) which tokens count as targets."""
    unusable: list[tuple[str, str]] = field(default_factory=list)
    """Name and fault of each record that was left out."""


class Encoder:
    """Turns lines of a corpus into documents of ids. Made once in each worker."""

    def __init__(self, tokenizer: Tokenizer, chat: bool) -> None:
        self.tokenizer = tokenizer
        self.chat = chat
        bos = [tokenizer.bos_id] if tokenizer.adds_bos else []
        eos = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        self._bos, self._eos = np.array(bos, np.uint32), np.array(eos, np.uint32)

    def __call__(self, lines: list[bytes]) -> Encoded:
        """Encode records, given as lines of JSON."""
        parts: list[npt.NDArray[Any]] = []
        masks: list[npt.NDArray[Any]] = []
        encoded = Encoded(ids=np.zeros(0, np.uint32))
        for line in lines:
            name = ""
            try:
                record = _record(line)
                name = str(record.get("id", ""))
                ids, mask, n_bytes = self._document(record)
            except (ChatError, ValueError) as error:
                encoded.unusable.append((name, str(error)))
                continue
            parts += ids
            masks += mask
            encoded.lengths.append(sum(map(len, ids)))
            encoded.names.append(name)
            encoded.n_bytes += n_bytes
        if parts:
            encoded.ids = np.concatenate(parts)
        if self.chat:
            encoded.mask = np.concatenate(masks) if masks else np.zeros(0, np.uint8)
        return encoded

    def _document(self, record: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Ids in parts, mask in parts, and UTF-8 bytes of what counts.

        Raises:
            ValueError: the record cannot be used; the message goes behind its name.
        """
        if "messages" in record:
            if not self.chat:
                raise ValueError("is a conversation among texts")
            return self._conversation(record["messages"])
        text = record.get("text")
        if not isinstance(text, str) or not text:
            raise ValueError("has no text")
        ids = [self._bos, self.tokenizer.encode_array(text), self._eos]
        mask = []
        if self.chat:
            mask = [np.zeros(len(self._bos), np.uint8), np.ones(len(ids[1]) + len(self._eos), np.uint8)]
        return ids, mask, len(text.encode("utf-8", "replace"))

    def _conversation(self, messages: Any) -> tuple[list[Any], list[Any], int]:
        ids, counts = self.tokenizer.encode_chat(messages)
        if not any(counts):
            raise ValueError(NO_COUNTED_TOKEN)
        if self.tokenizer.eos_id is not None and ids[-1] != self.tokenizer.eos_id:
            # A turn that no token of the template ends is ended by the document's: it must be learned then.
            ids, counts = [*ids, self.tokenizer.eos_id], [*counts, counts[-1]]
        array, mask = np.array(ids, np.uint32), np.array(counts, np.uint8)
        n_bytes = int(self.tokenizer.token_bytes[array[mask.astype(bool)]].sum())
        return [array], [mask], n_bytes


def _record(line: bytes) -> dict[str, Any]:
    """A line of a corpus.

    Raises:
        ValueError: it is no record: someone edited the file, say.
    """
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise ValueError("is no JSON object")
    return record


def tokenize(
    corpus_path: Path,
    tokenizer_path: Path,
    out: Path,
    *,
    chat: bool | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    max_unusable: float = 0.05,
) -> dict[str, Any]:
    """Encode a corpus into shards; the result does not depend on the number of workers.

    A document is its text between the tokenizer's marks of begin (where it asks for one) and end. A
    conversation is what the chat template makes of it, with a mask of what the assistant wrote.

    Args:
        corpus_path: The corpus.
        tokenizer_path: The tokenizer's folder.
        out: The folder to fill.
        chat: Store masks; None: as the corpus's first record is a conversation or not.
        workers: Threads or processes; None: one a core.
        progress: Where to show how far it is.
        should_stop: Asked between batches.
        max_unusable: Share of the records of a split that may be left out.

    Returns:
        Counts of each split, what was left out and why, and the engine that encoded.

    Raises:
        BadData: too many records cannot be used, or no token counts in the training split.
        Interrupted: ``should_stop`` said so.
    """
    chat = holds_conversations(corpus_path) if chat is None else chat
    tokenizer = Tokenizer.load(tokenizer_path)
    workers = workers or cores()
    summary: dict[str, Any] = {
        "engine": tokenizer.engine,
        "engine_reason": tokenizer.engine_reason,
        "chat": chat,
    }
    with _Pool(tokenizer_path, tokenizer, chat, workers, _size(corpus_path)) as pool:
        for split in SPLITS:
            settings: dict[str, Any] = {
                "vocab_size": tokenizer.vocab_size,
                "tokenizer": tokenizer.fingerprint,
                "chat": chat,
            }
            with ShardWriter(out / split, **settings) as writer:
                encoded = _watched(pool(_batches(corpus_path, split)), split, progress, should_stop)
                unusable = _write_all(encoded, writer)
            header = writer.header
            _judge(split, header.n_docs, unusable, max_unusable)
            summary[split] = {
                "documents": header.n_docs,
                "tokens": header.n_tokens,
                "counted_tokens": header.n_counted,
                "bytes": header.n_bytes,
                "unusable": dict(unusable.counts),
                "unusable_records": unusable.examples,
            }
    return summary


def holds_conversations(corpus_path: Path) -> bool:
    """Whether the first record of a corpus is a conversation."""
    for split in SPLITS:
        for record in read_records(corpus_path, split):
            return "messages" in record
    return False


@dataclass
class Unusable:
    """Records that were left out."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, str]] = field(default_factory=list)

    def add(self, records: list[tuple[str, str]]) -> None:
        """Count records, given by name and fault."""
        for name, fault in records:
            self.counts[fault] += 1
            if len(self.examples) < LISTED:
                self.examples.append({"record": name, "fault": fault})


def _write_all(encoded: Iterator[Encoded], writer: ShardWriter) -> Unusable:
    unusable = Unusable()
    for some in encoded:
        unusable.add(some.unusable)
        if some.names:
            writer.write_many(
                some.ids, lengths=some.lengths, names=some.names, n_bytes=some.n_bytes, mask=some.mask
            )
    return unusable


def _judge(split: str, n_docs: int, unusable: Unusable, limit: float) -> None:
    n_bad = unusable.counts.total()
    if n_bad <= limit * (n_docs + n_bad) and (n_docs or split != "train"):
        return
    faults = "; ".join(f"{n} × {fault}" for fault, n in unusable.counts.most_common(5))
    first = ", ".join(example["record"] for example in unusable.examples[:5])
    raise BadData(
        f"{n_bad} of {n_docs + n_bad} records of the split {split} cannot be used, and {limit:.0%} may: "
        f"{faults or 'it is empty'}" + (f" (first: {first})" if first else "")
    )


def _batches(corpus_path: Path, split: str) -> Iterator[list[bytes]]:
    """Lines of a split, about a mebibyte at a time; parsing is left to the workers."""
    lines: list[bytes] = []
    size = 0
    for file in sorted((corpus_path / split).glob("*.jsonl*")):
        try:
            for line in byte_lines(byte_chunks(file), limit=2**40):
                lines.append(line or b"")
                size += len(lines[-1])
                if size >= BATCH_BYTES:
                    yield lines
                    lines, size = [], 0
        except BrokenFile as error:
            raise BadData(f"{file} is damaged: {error}") from error
    if lines:
        yield lines


def _watched(
    encoded: Iterator[Encoded], split: str, progress: Progress | None, should_stop: Callable[[], bool]
) -> Iterator[Encoded]:
    """``encoded``, shown as it comes, until someone asks to stop."""
    from llmexp.track.progress import Interrupted
    from llmexp.track.progress import Progress as Shown

    with (progress or Shown(quiet=True)).task(f"tokenizing {split}", unit="documents") as task:
        n_tokens = 0
        for some in encoded:
            if should_stop():
                raise Interrupted("tokenizing starts over with the next run")
            n_tokens += len(some.ids)
            task.advance(len(some.names), tokens=n_tokens)
            yield some


class _Pool:
    """Maps batches to `Encoded` in order, over threads of this process or over processes.

    tiktoken releases the GIL, so that threads serve well until parsing and templates are the limit.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer, chat: bool, workers: int, size: int) -> None:
        self._encoder = Encoder(tokenizer, chat)
        self._count = workers
        self._threads = ThreadPoolExecutor(workers) if workers > 1 and size < PROCESSES_FROM else None
        self._processes = (
            Workers(workers, _begin, (path, chat)) if workers > 1 and not self._threads else None
        )

    def __call__(self, batches: Iterator[list[bytes]]) -> Iterator[Encoded]:
        if self._processes is not None:
            lines: Iterator[Any] = batches
            return self._processes.map(_encode, lines)
        return map(self._encoder, batches) if self._threads is None else self._in_threads(batches)

    def _in_threads(self, batches: Iterator[list[bytes]]) -> Iterator[Encoded]:
        assert self._threads is not None
        running = [self._threads.submit(self._encoder, b) for b in itertools.islice(batches, 2 * self._count)]
        while running:
            first = running.pop(0)
            running += [self._threads.submit(self._encoder, b) for b in itertools.islice(batches, 1)]
            yield first.result()

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        if self._processes is not None:
            self._processes.__exit__(*error)


_encoder: Encoder | None = None
"""Of this worker process."""


def _begin(tokenizer_path: Path, chat: bool) -> None:
    global _encoder
    _encoder = Encoder(Tokenizer.load(tokenizer_path), chat)


def _encode(lines: Any) -> Any:
    assert _encoder is not None
    return _encoder(lines)


def _size(corpus_path: Path) -> int:
    return sum(file.stat().st_size for file in corpus_path.glob("*/*.jsonl*"))
