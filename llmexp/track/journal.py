"""The journal: an append-only file of JSON lines, one record a line, that is the truth about a run.

Records, each with ``t``, the time in milliseconds since 1970, fixed when it was logged:

    {"t", "s": step, "m": {key: value}}      metrics; NaN and infinities as strings
    {"t", "params": {key: text}}             parameters, flat
    {"t", "tags": {key: text}}
    {"t", "file": path, "as": name}          a file of the run folder that is shown with the run
    {"t", "event": kind, "fields": {…}}      start, end, signal, checkpoint, rollback, child, …

Lines go to the operating system at once (about ten microseconds), so a killed process loses
none; ``sync`` forces them to the disk. A line torn by a crash is cut before appending.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.track.params import jsonable

log = logging.getLogger(__name__)

SYSTEM = "system/"
"""Prefix of keys whose steps count samples; a rollback of training does not touch them."""

_CHUNK = 1024
_RETRY_AFTER = 1.0


class StepSet:
    """A set of steps, kept as bitmaps of 1,024: a long run's every step costs one bit a key."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def __contains__(self, step: int) -> bool:
        chunk, bit = divmod(step, _CHUNK)
        return bool(self._bits.get(chunk, 0) >> bit & 1)

    def add(self, step: int) -> None:
        """Add one step."""
        chunk, bit = divmod(step, _CHUNK)
        self._bits[chunk] = self._bits.get(chunk, 0) | 1 << bit


@dataclass(frozen=True)
class Rollback:
    """Training went back to ``to``; what had been logged reached ``upto``. ``n`` counts from 1."""

    to: int
    upto: int
    n: int

    def key(self, key: str, step: int) -> str:
        """Where a value logged after this rollback goes."""
        replayed = self.to < step <= self.upto and not key.startswith(SYSTEM)
        return f"{key}@retry{self.n}" if replayed else key


def now_ms() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def encode(record: Mapping[str, Any]) -> bytes:
    """One journal line. Raises ValueError for a non-finite number outside metrics."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def read_records(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The records from byte ``start`` on, each with the offset behind it.

    An unfinished last line is left out. A damaged line (zeros after a power cut) is skipped
    with a warning. A missing file holds no records.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start += len(line)
            try:
                record = json.loads(line)
            except ValueError:
                log.warning("%s: the line that ends at byte %d is damaged and skipped", path, start)
                continue
            if isinstance(record, dict):
                yield record, start


def last_event(path: Path) -> str:
    """The kind of the event in a journal's last line; empty when that line is another record."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8192))
        lines = file.read().splitlines(keepends=True)
    if not lines or not lines[-1].endswith(b"\n") or b'"event":' not in lines[-1]:
        return ""
    try:
        return json.loads(lines[-1]).get("event", "")
    except ValueError:  # a line longer than what was read is no end
        return ""


class Journal:
    """A run's journal, open for appending by the one process that owns the run.

    Opening reads what is there: the keys and steps that were logged, the parameters, the number
    of starts, the last rollback. Methods may be called from several threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.params: dict[str, str] = {}
        self.starts = 0
        self.rollback: Rollback | None = None
        self.furthest = -1
        self._samples = -1
        self._seen: dict[str, StepSet] = {}
        self._lock = threading.Lock()
        self._pending: list[bytes] = []
        self._failed_at: float | None = None
        for record, _ in read_records(path):
            self._note(record)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._size = _cut_torn_line(self._fd)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Journal values of ``step`` that were not journaled before; the first value stands."""
        fresh: dict[str, float | str] = {}
        with self._lock:
            for name, value in values.items():
                key = self.rollback.key(name, step) if self.rollback else name
                if self._see(key, step):
                    fresh[key] = jsonable(float(value))
            if fresh:
                self._append(encode({"t": now_ms(), "s": step, "m": fresh}))

    def write(self, **record: Any) -> None:
        """Journal a record of another kind than metrics."""
        with self._lock:
            stamped = {"t": now_ms(), **record}
            self._note(stamped)
            self._append(encode(stamped))

    def roll_back(self, step: int) -> None:
        """From now on the steps after ``step`` that were logged before go to ``<key>@retry<n>``."""
        n = self.rollback.n + 1 if self.rollback else 1
        self.write(event="rollback", fields={"to": step, "upto": self.furthest, "n": n})

    def next_sample(self) -> int:
        """The step of the next system sample; goes on where an earlier incarnation stopped."""
        return self._samples + 1

    def sync(self) -> None:
        """Force what was written to the disk. A failure is warned about, once."""
        with self._lock:
            self._drain(force=True)
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        """Force to the disk and close."""
        self.sync()
        with self._lock:
            if self._pending:
                log.error("%s: %d records could not be written and are lost", self.path, len(self._pending))
            os.close(self._fd)

    def _see(self, key: str, step: int) -> bool:
        """Note that ``key`` was logged at ``step``; whether it is new."""
        steps = self._seen.setdefault(key, StepSet())
        if step in steps:
            return False
        steps.add(step)
        if key.startswith(SYSTEM):
            self._samples = max(self._samples, step)
        else:
            self.furthest = max(self.furthest, step)
        return True

    def _note(self, record: Mapping[str, Any]) -> None:
        for key in record.get("m", ()):
            self._see(key, record["s"])
        for key, text in record.get("params", {}).items():
            self.params.setdefault(key, text)
        self.starts += record.get("event") == "start"
        if record.get("event") == "rollback":
            self.rollback = Rollback(**record["fields"])

    def _append(self, line: bytes) -> None:
        self._pending.append(line)
        self._drain()

    def _drain(self, *, force: bool = False) -> None:
        """Write what is pending. After a failure, try again at most once a second."""
        if not self._pending:
            return
        if self._failed_at is not None and not force and time.monotonic() - self._failed_at < _RETRY_AFTER:
            return
        data = memoryview(b"".join(self._pending))
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], self._size + done)
        except OSError as error:
            self._warn(error)
            with contextlib.suppress(OSError):  # a torn tail is cut by whoever opens the journal next
                os.ftruncate(self._fd, self._size)
            return
        self._size += done
        self._pending.clear()
        if self._failed_at is not None:
            log.warning("%s can be written again; nothing is lost", self.path)
            self._failed_at = None

    def _warn(self, error: OSError) -> None:
        if self._failed_at is None:
            log.warning(
                "%s cannot be written (%s); records are kept in memory and tried again", self.path, error
            )
        self._failed_at = time.monotonic()


def _cut_torn_line(fd: int) -> int:
    """Cut the file behind its last newline and return its size."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        begin = max(0, end - 65536)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    if end < size:
        log.warning("a line of %d bytes was torn by a crash and is cut", size - end)
        os.ftruncate(fd, end)
    return end
