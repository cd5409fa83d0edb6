"""A run's log: events and metrics of its stages in the order of time, also while they are written."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.launch.status import KILLED, run_state
from llmexp.stage.runs import PipelineRecord
from llmexp.track.journal import SYSTEM, read_records
from llmexp.track.runs import JOURNAL

POLL = 0.5
"""Seconds between two looks at the journals."""

PIPELINE_ITSELF = "pipeline"


@dataclass(frozen=True)
class Entry:
    """One line of a log."""

    time: float
    """Seconds since 1970."""
    stage: str
    """Name of the stage; ``pipeline`` for what the pipeline itself logged."""
    kind: str
    """The event's kind, or ``metrics``."""
    fields: dict[str, Any]
    """The event's fields, or metric key to value."""
    step: int | None = None
    """Of metrics."""


class Log:
    """The journals of one run, each read once; ``new`` gives what was added since it was last asked."""

    def __init__(self, run_dir: Path, stage: str | None = None) -> None:
        """``stage``: only that one; None is the pipeline and all of its stages."""
        self.run_dir = run_dir
        self.stage = stage
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[Entry]:
        """Entries in the order of time."""
        journals = [self._entries(name, folder / JOURNAL) for name, folder in self._folders()]
        return heapq.merge(*journals, key=lambda entry: entry.time)

    def _folders(self) -> list[tuple[str, Path]]:
        links = PipelineRecord.read(self.run_dir).stages
        stages = [(name, Path(link.run_dir)) for name, link in links.items() if link.run_dir]
        if self.stage is not None:
            return [(name, folder) for name, folder in stages if name == self.stage]
        return [(PIPELINE_ITSELF, self.run_dir), *stages]

    def _entries(self, name: str, journal: Path) -> Iterator[Entry]:
        for record, end in read_records(journal, self._read.get(journal, 0)):
            self._read[journal] = end
            entry = _entry(name, record)
            if entry is not None:
                yield entry

    def state(self) -> str:
        """How the run, or the one stage, is: see :class:`llmexp.launch.status.StageState`."""
        found = run_state(self.run_dir, "")
        if self.stage is None or found.state in ("done", "failed"):
            return found.state
        return next(stage.state for stage in found.stages if stage.name == self.stage)

    def errors(self) -> Iterator[tuple[str, str]]:
        """(stage, text of its error) of each stage that failed."""
        for name, link in PipelineRecord.read(self.run_dir).stages.items():
            if link.status == "failed" and self.stage in (None, name):
                file = Path(link.run_dir) / "error.txt" if link.run_dir else None
                yield name, file.read_text(encoding="utf-8") if file and file.is_file() else link.error


def _entry(name: str, record: dict[str, Any]) -> Entry | None:
    """The entry of a journal's record; None for what is no news (parameters, tags, files, system metrics)."""
    at = record["t"] / 1000
    if "event" in record:
        return Entry(at, name, record["event"], record.get("fields", {}))
    values = {key: float(value) for key, value in record.get("m", {}).items() if not key.startswith(SYSTEM)}
    return Entry(at, name, "metrics", values, record["s"]) if values else None


def follow(log: Log, say: Callable[[str], None], poll: float = POLL) -> Iterator[Entry]:
    """Entries as they come, across restarts, until the run is done or has failed.

    ``say`` is told, once each time, that the run has stopped and may go on.
    """
    told = False
    while True:
        state = log.state()  # before reading: what is written until the end is then read too
        yield from log.new()
        if state in ("done", "failed"):
            return
        stopped = state in ("interrupted", KILLED)
        if stopped and not told:
            say(
                f"the run has stopped ({state}); waiting for it to go on: the same command continues it. "
                "Ctrl-C ends this log"
            )
        told = stopped
        time.sleep(poll)
