"""What a run folder says about its run, read back for status, reports and delivery."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from llmexp.track.journal import read_records

RUN_FILE = "run.json"
JOURNAL = "journal.jsonl"
EVENTS = "events.jsonl"
DELIVERY = "delivery"
SILENT_AFTER = 600.0
"""Seconds without a journal line after which a run on another host counts as dead."""


class Series(NamedTuple):
    """One metric of a run, in the order in which it was journaled."""

    steps: list[int]
    values: list[float]
    times: list[float]
    """Seconds since 1970."""


@dataclass
class Run:
    """``run.json``: who and where a run is. Times are seconds since 1970."""

    id: str
    """Chosen once; a resumed run keeps it."""
    name: str
    stage: str
    experiment: str = ""
    status: str = "RUNNING"
    """RUNNING, FINISHED, FAILED or KILLED; KILLED also when the process is gone without a word."""
    started: float = 0.0
    ended: float | None = None
    incarnation: int = 1
    """How many processes have worked on this run, counted from 1."""
    pid: int = 0
    pid_started: float = 0.0
    host: str = ""
    parent: str | None = None
    """Run folder of the pipeline that this run is a stage of."""
    tracking: dict[str, Any] = field(default_factory=dict)
    """Where it is delivered: ``sink`` and its address, without credentials."""
    remote: dict[str, Any] = field(default_factory=dict)
    """By destination, the ids there (``run_id``, ``experiment_id``); filled in when read."""


def read_run(run_dir: Path) -> Run:
    """The run of a run folder, with the ids that delivery got for it.

    A run that says RUNNING but whose process is gone reads as KILLED.

    Raises:
        FileNotFoundError: no run was ever started in this folder.
    """
    run = Run(**json.loads((run_dir / RUN_FILE).read_text()))
    for path in sorted((run_dir / DELIVERY).glob("*/remote.json")):
        run.remote[path.parent.name] = json.loads(path.read_text())
    if run.status == "RUNNING" and not is_alive(run, run_dir):
        run.status = "KILLED"
    return run


def write_run(run_dir: Path, run: Run) -> None:
    """Write ``run.json`` whole or not at all."""
    data = {k: v for k, v in asdict(run).items() if k != "remote"}
    write_json(run_dir / RUN_FILE, data)


def is_alive(run: Run, run_dir: Path) -> bool:
    """Whether the process that owns a run lives; on another host, whether it logged lately."""
    if run.host == socket.gethostname():
        return process_started(run.pid) == run.pid_started
    journal = run_dir / JOURNAL
    return journal.exists() and time.time() - journal.stat().st_mtime < SILENT_AFTER


def process_started(pid: int) -> float | None:
    """When the process ``pid`` of this host started, or None when there is none."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time(), 2)
    except psutil.NoSuchProcess:
        return None


def journals(run_dir: Path) -> list[Path]:
    """The run's own journal, then those of its other nodes."""
    return [run_dir / JOURNAL, *sorted(run_dir.glob("journal.node*.jsonl"))]


def read_metrics(run_dir: Path) -> dict[str, Series]:
    """Every metric of a run: its steps, values and times. NaN and infinities are kept."""
    metrics: dict[str, Series] = {}
    for path in journals(run_dir):
        for record, _ in read_records(path):
            for key, value in record.get("m", {}).items():
                series = metrics.setdefault(key, Series([], [], []))
                series.steps.append(record["s"])
                series.values.append(float(value))
                series.times.append(record["t"] / 1000)
    return metrics


def read_events(run_dir: Path) -> list[dict[str, Any]]:
    """The events of a run in order: ``{"time": seconds since 1970, "event": kind, **fields}``."""
    return list(_events(run_dir))


def _events(run_dir: Path) -> Iterator[dict[str, Any]]:
    for record, _ in read_records(run_dir / JOURNAL):
        if "event" in record:
            yield {**record["fields"], "time": record["t"] / 1000, "event": record["event"]}


def write_json(path: Path, data: Any) -> None:
    """Write JSON whole or not at all, and durably: fsync, then rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
