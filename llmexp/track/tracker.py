"""The tracker: what a stage logs to. It writes the run folder; delivery follows by itself.

Global rank 0 holds a ``RunTracker``, the first rank of each further node a ``NodeTracker``,
every other rank a plain ``Tracker``, which records nothing: see ``start``.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from llmexp.track import process
from llmexp.track.config import DeliveredSpec, TrackingSpec
from llmexp.track.delivery import Destination, destination
from llmexp.track.environment import environment, environment_tags
from llmexp.track.journal import SYSTEM, Journal, encode, now_ms
from llmexp.track.masking import Mask, mask_of, masked
from llmexp.track.params import flatten, jsonable
from llmexp.track.progress import Interrupted
from llmexp.track.runs import EVENTS, JOURNAL, RUN_FILE, Run, process_started, read_run, write_json, write_run
from llmexp.track.system import System

log = logging.getLogger(__name__)

ARTIFACTS = "artifacts"
SYNC_EVERY = 10.0
"""Seconds between two writes of the journal to the disk when no system metrics are sampled."""


class HasFingerprint(Protocol):
    """What lineage needs of an artifact."""

    @property
    def kind(self) -> str:
        """What it is."""

    @property
    def fingerprint(self) -> str:
        """Which one it is."""

    @property
    def path(self) -> Path:
        """Where it lies."""


class Tracker:
    """Records nothing: what ranks hold that do not write. Also the interface of those that do."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log values of a step; the first value of a (key, step) stands. Floats; NaN is kept."""

    def params(self, nested: Mapping[str, Any]) -> None:
        """Log the configuration. An equal value again does nothing; a changed one becomes a tag."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Log short texts by which runs are found; a later value replaces an earlier one."""

    def event(self, kind: str, **fields: Any) -> None:
        """Log something that happened. ``checkpoint`` events also force the journal to the disk."""

    def file(self, path: Path, name: str) -> None:
        """Keep a copy of a file as the run's file ``name`` (such as ``figures/loss.png``)."""

    def lineage(
        self, inputs: Mapping[str, HasFingerprint | list[HasFingerprint]], output: HasFingerprint | None
    ) -> None:
        """Record what the run reads, by need, and the artifact that it makes, once it is known."""

    def rollback(self, step: int) -> None:
        """Training goes back to ``step``: what is replayed is logged as ``<key>@retry<n>``."""

    def flush(self) -> None:
        """Force what was logged to the disk; call it before a checkpoint is published."""

    def close(self, status: str = "FINISHED") -> str:
        """End the run as FINISHED, FAILED or KILLED. Returns what a person should know, or nothing."""
        del status
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, trace
        if told := self.close(_status(error)):
            log.warning("%s", told)


class NodeTracker(Tracker):
    """System metrics of a further node, in a journal of their own."""

    def __init__(self, run_dir: Path, node: int, every: float) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)  # rank 0 may be slower
        self._journal = Journal(run_dir / f"journal.node{node}.jsonl")
        self._beat = Heartbeat(
            self._journal, System(run_dir, f"{SYSTEM}node{node}/") if every else None, every
        )

    def close(self, status: str = "FINISHED") -> str:
        """Stop sampling."""
        del status
        self._beat.stop()
        self._journal.close()
        return ""


class RunTracker(Tracker):
    """The one writer of a run. Made by ``start``."""

    def __init__(self, run_dir: Path, run: Run, mask: Mask, journal: Journal, every: float) -> None:
        self.run_dir = run_dir
        self.run = run
        self._mask = mask
        self._journal = journal
        self._events = os.open(run_dir / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._beat = Heartbeat(journal, System(run_dir, SYSTEM) if every else None, every)
        self._delivery: subprocess.Popen[bytes] | None = None
        self._close_wait = 0.0
        self._lineage: dict[str, Any] = {"inputs": {}, "output": None}
        self._closed = False

    @property
    def delivers(self) -> bool:
        """Whether a delivery process follows this tracker's journal."""
        return self._delivery is not None

    def deliver(self, where: Destination, spec: DeliveredSpec) -> None:
        """Start the delivery process."""
        self._close_wait = spec.close_wait
        self._delivery = process.start(self.run_dir, where, spec.linger)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log values of a step; the first value of a (key, step) stands."""
        self._journal.metrics(values, step)

    def params(self, nested: Mapping[str, Any]) -> None:
        """Log the configuration, whole as ``config.yaml`` and flat as parameters."""
        resumes = self._journal.starts - 1
        flat = masked(flatten(nested), self._mask)
        known = self._journal.params
        changed = {f"param.{k}@resume{resumes}": v for k, v in flat.items() if known.get(k, v) != v}
        fresh = {k: v for k, v in flat.items() if k not in known}
        if fresh:
            self._journal.write(params=fresh)
        if changed:
            self._journal.write(tags=changed)
        if fresh or changed:
            name = f"config.resume{resumes}.yaml" if resumes else "config.yaml"
            self._config(masked(jsonable(nested), self._mask), name)

    def tags(self, values: Mapping[str, str]) -> None:
        """Log short texts by which runs are found."""
        self._journal.write(tags=masked({k: str(v) for k, v in values.items()}, self._mask))

    def event(self, kind: str, **fields: Any) -> None:
        """Log something that happened, in the journal and in ``events.jsonl``."""
        fields = masked(jsonable(fields), self._mask)
        self._journal.write(event=kind, fields=fields)
        try:
            os.write(self._events, encode({"time": now_ms() / 1000, "event": kind, **fields}))
        except OSError as error:
            log.warning("%s cannot be written (%s); the journal has the event", self.run_dir / EVENTS, error)
        if kind in ("start", "checkpoint", "signal", "end"):
            self._journal.sync()

    def file(self, path: Path, name: str) -> None:
        """Keep a copy of a file as the run's file ``name``."""
        self._keep(name, lambda copy: shutil.copyfile(path, copy))

    def lineage(
        self, inputs: Mapping[str, HasFingerprint | list[HasFingerprint]], output: HasFingerprint | None
    ) -> None:
        """Record inputs and output as tags and in ``lineage.json``."""
        told = {
            need: [_reference(a) for a in (v if isinstance(v, list) else [v])] for need, v in inputs.items()
        }
        self._lineage["inputs"] |= told
        tags = {
            f"input.{need}": ", ".join(f"{r['kind']}/{r['fingerprint']}" for r in all_)
            for need, all_ in told.items()
        }
        if output is not None:
            self._lineage["output"] = _reference(output)
            tags["output"] = f"{output.kind}/{output.fingerprint}"
        self.tags(tags)
        self._write(self._lineage, "lineage.json")

    def rollback(self, step: int) -> None:
        """Training goes back to ``step``."""
        self._journal.roll_back(step)

    def flush(self) -> None:
        """Force what was logged to the disk."""
        self._journal.sync()

    def child(self, run_dir: Path) -> None:
        """Have a stage's run folder delivered by this run's delivery process."""
        self.event("child", run_dir=os.path.relpath(run_dir, self.run_dir))

    def close(self, status: str = "FINISHED") -> str:
        """End the run; wait for its delivery as long as the tracking spec allows."""
        if self._closed:
            return ""
        self._closed = True
        self._beat.stop()
        self.event("end", status=status)
        self._journal.close()
        os.close(self._events)
        self.run.status, self.run.ended = status, time.time()
        write_run(self.run_dir, self.run)
        return self._await_delivery()

    def _await_delivery(self) -> str:
        if self._delivery is None:
            return ""
        try:
            code = self._delivery.wait(self._close_wait)
        except subprocess.TimeoutExpired:
            self._delivery.returncode = 0  # left to itself: not waited for, and no warning that it still runs
            return (
                f"{self.run.name} is still being delivered; what its server does not take in time stays in "
                f"{self.run_dir} until `llmexp sync {self.run_dir}`"
            )
        if code:
            why = _last_line(self.run_dir / "delivery" / "log.txt")
            return f"{self.run.name} was not delivered: {why}; deliver it with `llmexp sync {self.run_dir}`"
        return ""

    def _config(self, nested: Any, name: str) -> None:
        import yaml

        text = yaml.safe_dump(nested, sort_keys=False, allow_unicode=True)
        self._keep(name, lambda path: path.write_text(text))

    def _write(self, data: Any, name: str) -> None:
        self._keep(name, lambda path: write_json(path, data))

    def _keep(self, name: str, write: Callable[[Path], Any]) -> None:
        """Write a file of the run whole or not at all, then journal it. A full disk stops nothing."""
        path = self.run_dir / ARTIFACTS / name
        if not path.resolve().is_relative_to((self.run_dir / ARTIFACTS).resolve()):
            raise ValueError(f"{name!r} is outside the run folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            write(temporary)
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            log.warning("%s cannot be written: %s", path, error)
            return
        self._journal.write(**{"file": str(path.relative_to(self.run_dir)), "as": name})


class Heartbeat:
    """A thread that samples the system into a journal and forces the journal to the disk."""

    def __init__(self, journal: Journal, system: System | None, every: float) -> None:
        self._journal = journal
        self._system = system
        self._every = every or SYNC_EVERY
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmexp-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, after the sample that is being taken."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            if self._system is not None:
                try:
                    self._journal.metrics(self._system.sample(), self._journal.next_sample())
                except OSError as error:
                    log.warning("system metrics end: %s", error)
                    self._system = None
            self._journal.sync()


def start(
    spec: TrackingSpec,
    *,
    run_dir: Path,
    name: str,
    stage: str,
    outputs: Path,
    parent: Tracker | Path | None = None,
    mask: Mask | Iterable[str] = (),
    rank: int = 0,
    node: int = 0,
    local_rank: int = 0,
) -> Tracker:
    """Start tracking a run, or go on with it: the run folder decides.

    Args:
        run_dir: the run's folder, the same for all its ranks and incarnations.
        name: what people call the run.
        stage: the stage's name, or ``pipeline``.
        outputs: folder of the default database.
        parent: the pipeline's tracker, when it lives in this process: then its delivery process
            delivers this run too; or the pipeline's run folder.
        mask: lays ``***`` over secrets in a text; or the secrets.
        rank: global rank; 0 writes the run.
        node: index of this host; beyond 0, its local rank 0 writes the host's system metrics.
    """
    if rank != 0:
        sampled = node > 0 and local_rank == 0 and spec.system_every > 0
        return NodeTracker(run_dir, node, spec.system_every) if sampled else Tracker()
    run_dir.mkdir(parents=True, exist_ok=True)
    mask = mask if callable(mask) else mask_of(mask)
    journal = Journal(run_dir / JOURNAL)
    where = destination(spec, outputs)
    folder = parent.run_dir if isinstance(parent, RunTracker) else parent
    run = _begin(run_dir, name, stage, spec, where, folder if isinstance(folder, Path) else None)
    tracker = RunTracker(run_dir, run, mask, journal, spec.system_every)
    tracker.event("start", incarnation=run.incarnation, pid=run.pid, host=run.host)
    found = environment()
    tracker.tags(environment_tags(found))
    tracker._write(masked(found, mask), "environment.json")
    if isinstance(parent, RunTracker) and parent.delivers:
        parent.child(run_dir)
    elif where is not None and isinstance(spec, DeliveredSpec):
        tracker.deliver(where, spec)
    return tracker


def _begin(
    run_dir: Path, name: str, stage: str, spec: TrackingSpec, where: Destination | None, parent: Path | None
) -> Run:
    """``run.json`` of a new run, or of the next incarnation of the one that is there."""
    if (run_dir / RUN_FILE).exists():
        run = read_run(run_dir)
        run.incarnation += 1
    else:
        run = Run(id=uuid.uuid4().hex, name=name, stage=stage, started=time.time())
    run.status, run.ended, run.experiment = "RUNNING", None, spec.experiment
    run.pid, run.host = os.getpid(), socket.gethostname()
    run.pid_started = process_started(run.pid) or 0.0
    run.parent = str(parent.absolute()) if parent is not None else run.parent
    run.tracking = where.public() if where is not None else {}
    write_run(run_dir, run)
    return run


def _reference(artifact: HasFingerprint) -> dict[str, str]:
    return {"kind": artifact.kind, "fingerprint": artifact.fingerprint, "path": str(artifact.path)}


def _status(error: BaseException | None) -> str:
    if error is None:
        return "FINISHED"
    return "KILLED" if isinstance(error, (Interrupted, KeyboardInterrupt, SystemExit)) else "FAILED"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return lines[-1] if lines else "see its log"
