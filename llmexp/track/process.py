"""The delivery process: ``python -m llmexp.track.process`` follows a run's journal beside training.

It is started by the tracker of rank 0, reads its task as one JSON object from standard input,
also follows the stages that a pipeline's journal names, and ends by itself: when everything is
delivered after the run's end or its process's death, or ``linger`` seconds after that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from filelock import Timeout

from llmexp.track.delivery import Delivery, Destination, Refused, Unreachable, close_if_dead
from llmexp.track.masking import without_credentials
from llmexp.track.runs import DELIVERY

log = logging.getLogger(__name__)

POLL = 0.25
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the follower retries, with the journal as its buffer
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def start(run_dir: Path, where: Destination, linger: float) -> subprocess.Popen[bytes]:
    """Start the delivery process of a run, in a session of its own so that Ctrl-C does not reach it."""
    task = {"run_dir": str(run_dir), "where": asdict(where), "linger": linger, "parent": os.getpid()}
    environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    (run_dir / DELIVERY).mkdir(exist_ok=True)
    with (run_dir / DELIVERY / "log.txt").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "llmexp.track.process", str(run_dir)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    (run_dir / DELIVERY / "pid").write_text(str(process.pid))
    assert process.stdin is not None
    process.stdin.write(json.dumps(task).encode())  # not in argv, which every user of the host can read
    process.stdin.close()
    return process


class Follower:
    """Delivers one run, and the stages it starts, until the run is over."""

    def __init__(self, run_dir: Path, where: Destination, *, linger: float, parent: int) -> None:
        self.where = where
        self.linger = linger
        self.parent = parent
        self.root = Delivery(run_dir, where)
        self.deliveries = {run_dir.resolve(): self.root}
        self.held: set[Path] = set()
        self._pause = FIRST_PAUSE

    def run(self) -> None:
        """Deliver until the run has ended and nothing is left, or ``linger`` is over."""
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            over = self.root.ended() or os.getppid() != self.parent
            if over and deadline is None:
                deadline = time.monotonic() + self.linger
            try:
                delivered = self._round()
                if over and not delivered:
                    self._finish()
                    return
                self._pause = FIRST_PAUSE
            except Unreachable as error:
                log.warning("not delivered yet: %s", without_credentials(str(error)))
                self._wait(over)
                continue
            if not delivered:
                time.sleep(POLL)

    def close(self) -> None:
        """Give back every lease."""
        for delivery in self.deliveries.values():
            delivery.close()

    def _round(self) -> int:
        """One batch of each run whose lease is ours; new children join."""
        delivered = 0
        for path, delivery in list(self.deliveries.items()):
            if not self._hold(path, delivery):
                continue
            delivered += delivery.step()
            for child in delivery.children:
                if child.resolve() not in self.deliveries:
                    self.deliveries[child.resolve()] = Delivery(child, self.where)
                    delivered += 1
        return delivered

    def _hold(self, path: Path, delivery: Delivery) -> bool:
        """Whether the run's lease is ours; another process that delivers it is left alone."""
        if path not in self.held:
            try:
                delivery.lease.acquire(timeout=0)
            except Timeout:
                return False
            self.held.add(path)
        return True

    def _finish(self) -> None:
        for path, delivery in self.deliveries.items():
            if path in self.held:
                close_if_dead(delivery)

    def _wait(self, over: bool) -> None:
        """Pause, longer each time; cut short when the run ends meanwhile, for one more try."""
        until = time.monotonic() + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        while time.monotonic() < until:
            if not over and (self.root.ended() or os.getppid() != self.parent):
                self._pause = FIRST_PAUSE
                return
            time.sleep(POLL)


def main() -> int:
    """Follow the run that standard input names. Returns the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    os.nice(5)  # training comes first
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # SLURM sends it to all of a job; the run's end is still to come
    task = json.load(sys.stdin)
    where = Destination(**task["where"])
    with contextlib.closing(
        Follower(Path(task["run_dir"]), where, linger=task["linger"], parent=task["parent"])
    ) as follower:
        try:
            follower.run()
        except Refused as error:
            log.error("delivery stops: %s", without_credentials(str(error)))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
