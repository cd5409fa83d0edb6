"""Delivery: bringing a journal to a tracking server, exactly once in effect, whenever it answers.

A cursor is saved after each batch. A batch that arrived but whose cursor was lost is sent again
with the journal's own timestamps, which the server takes for the rows it has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import SoftFileLease, Timeout

from llmexp.config.spec import target
from llmexp.track.config import TrackingSpec
from llmexp.track.journal import last_event, read_records
from llmexp.track.masking import without_credentials
from llmexp.track.runs import DELIVERY, JOURNAL, Run, journals, read_run, write_json

log = logging.getLogger(__name__)

LEASE = 10.0
"""Seconds after which a delivery that died is taken over."""
LARGEST, SMALLEST = 2000, 50
"""Records of one batch; halved when the server is too slow for it, and doubled again."""


class Unreachable(Exception):
    """The server does not answer, or not in time: try again later."""


class Refused(Exception):
    """The server answers and will not take this; trying again does not help."""


class Sink(Protocol):
    """One run's end of a tracking server. Raises Unreachable or Refused."""

    def open(self, run: Run, run_dir: Path, remote: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
        """Find or create the run there; ``remote`` and the result are its ids, ``parent`` its parent's."""

    def deliver(self, records: list[dict[str, Any]]) -> None:
        """Take journal records (``at``: place in the journal). The same records may come again."""

    def close(self) -> None:
        """Let go of the connection; the run's status stays as it is."""


@dataclass(frozen=True)
class Destination:
    """A sink's class as ``module:class`` and the keywords that build it."""

    sink: str
    address: dict[str, str]

    @property
    def name(self) -> str:
        """A short name, the same for the same place: the folder of its cursor."""
        digest = hashlib.sha256(json.dumps(self.public(), sort_keys=True).encode()).hexdigest()
        return f"{self.sink.rpartition(':')[2].lower()}-{digest[:8]}"

    def public(self) -> dict[str, Any]:
        """As data, without the credentials a URI may hold."""
        return {"sink": self.sink, "address": {k: without_credentials(v) for k, v in self.address.items()}}


def destination(spec: TrackingSpec, outputs: Path) -> Destination | None:
    """Where runs tracked by ``spec`` are delivered, or None."""
    return Destination(spec.sink, spec.address(outputs)) if spec.sink else None


class Delivery:
    """One run's delivery to one destination. Used by one process at a time: see ``lease``."""

    def __init__(self, run_dir: Path, where: Destination) -> None:
        self.run_dir = run_dir
        self.where = where
        self.folder = run_dir / DELIVERY / where.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lease = SoftFileLease(self.folder / "lease", lease_duration=LEASE, thread_local=False)
        self.children: list[Path] = []
        """Run folders of stages that the journal has named so far."""
        self._sink: Sink | None = None
        self._size = LARGEST
        self._cursors: dict[str, int] = _read_json(self.folder / "cursor.json")
        self._replay_children()

    def step(self) -> int:
        """Deliver the next batch and save the cursor. Returns the number of records.

        Raises:
            Unreachable: nothing of it counts as delivered; call again later.
        """
        if not self._waiting():
            return 0
        try:
            sink = self._opened()
            batch, cursors = self._next_batch()
            sink.deliver(batch)
        except Unreachable:
            self._size = max(SMALLEST, self._size // 2)
            raise
        self._size = min(LARGEST, self._size * 2)
        self._cursors = cursors
        write_json(self.folder / "cursor.json", cursors)
        for record in batch:
            self._child(record)
        return len(batch)

    def end(self, status: str) -> None:
        """Tell the server how a run ended whose own process could not write it."""
        last = int((self.run_dir / JOURNAL).stat().st_mtime * 1000)
        self._opened().deliver([{"t": last, "event": "end", "fields": {"status": status}}])

    def ended(self) -> bool:
        """Whether the last thing in the run's journal is its end."""
        return last_event(self.run_dir / JOURNAL) == "end"

    def remaining(self) -> int:
        """Number of records that are not delivered yet."""
        return sum(
            1 for path in journals(self.run_dir) for _ in read_records(path, self._cursors.get(path.name, 0))
        )

    def remote(self, parent: dict[str, Any] | None = None) -> dict[str, Any]:
        """The run's ids at the destination; the run is created there when it is new."""
        self._opened(parent)
        return _read_json(self.folder / "remote.json")

    def close(self) -> None:
        """Let go of the sink and of the lease."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        if self.lease.is_locked:
            self.lease.release()

    def _opened(self, parent: dict[str, Any] | None = None) -> Sink:
        if self._sink is None:
            run = read_run(self.run_dir)
            if parent is None:
                parent = self._parent(run)
            sink: Sink = target(self.where.sink)(**self.where.address)
            with SoftFileLease(self.folder / "create", lease_duration=LEASE):
                known = _read_json(self.folder / "remote.json")
                remote = sink.open(run, self.run_dir, known, parent)
                if remote != known:
                    write_json(self.folder / "remote.json", remote)
            if known and remote != known:  # the database was emptied: everything is told again
                self._cursors = {}
            self._sink = sink
        return self._sink

    def _parent(self, run: Run) -> dict[str, Any]:
        """The ids of the parent run, which is created when its own delivery has not done so yet."""
        if run.parent is None or not (Path(run.parent) / JOURNAL).exists():
            return {}
        parent = Delivery(Path(run.parent), self.where)
        try:
            return parent.remote()
        finally:
            parent.close()

    def _waiting(self) -> bool:
        """Whether a journal has grown behind its cursor."""
        return any(
            path.exists() and path.stat().st_size > self._cursors.get(path.name, 0)
            for path in journals(self.run_dir)
        )

    def _next_batch(self) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The next records, durable on disk before they are told to anyone, and the cursors behind them."""
        batch: list[dict[str, Any]] = []
        cursors = dict(self._cursors)
        for path in journals(self.run_dir):
            start = cursors.get(path.name, 0)
            if not path.exists() or path.stat().st_size <= start:
                continue
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            for record, end in read_records(path, start):
                batch.append({**record, "at": end} if path.name == JOURNAL else record)
                cursors[path.name] = end
                if len(batch) >= self._size:
                    return batch, cursors
        return batch, cursors

    def _replay_children(self) -> None:
        """Learn the children from what was delivered before."""
        delivered = self._cursors.get(JOURNAL, 0)
        for record, end in read_records(self.run_dir / JOURNAL):
            if end > delivered:
                return
            self._child(record)

    def _child(self, record: dict[str, Any]) -> None:
        if record.get("event") == "child":
            self.children.append(self.run_dir / record["fields"]["run_dir"])


@dataclass(frozen=True)
class Synced:
    """What ``sync`` did for one run."""

    run_dir: Path
    delivered: int
    """Records delivered now."""
    remaining: int
    """Records that still wait."""
    problem: str = ""


def sync(run_dirs: Iterable[Path], where: Destination, *, patience: float = 5.0) -> list[Synced]:
    """Deliver what runs kept while their server was away, and close runs whose process died.

    The stages that a pipeline's journal names are delivered with it.

    Args:
        patience: seconds to wait for a delivery of the same run that is going on elsewhere.
    """
    waiting = [run_dir.resolve() for run_dir in run_dirs]
    done: dict[Path, Synced] = {}
    while waiting:
        run_dir = waiting.pop(0)
        if run_dir not in done:
            delivery = Delivery(run_dir, where)
            done[run_dir] = _sync_one(delivery, patience)
            waiting += [child.resolve() for child in delivery.children]
    return list(done.values())


def _sync_one(delivery: Delivery, patience: float) -> Synced:
    delivered, problem = 0, ""
    try:
        delivery.lease.acquire(timeout=patience)
        while count := delivery.step():
            delivered += count
        close_if_dead(delivery)
    except Timeout:
        problem = "another process is delivering this run"
    except (Unreachable, Refused) as error:
        problem = without_credentials(str(error))
    finally:
        delivery.close()
    return Synced(delivery.run_dir, delivered, delivery.remaining(), problem)


def close_if_dead(delivery: Delivery) -> None:
    """Tell the destination that a run was KILLED whose process ended without a word."""
    run = read_run(delivery.run_dir)
    if delivery.ended() or run.status != "KILLED":
        return
    delivery.end("KILLED")


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
