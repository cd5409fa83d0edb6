"""A training stage in processes of its own, which can be made to die in the middle of a step.

``python -m llmexp.prove.child JOB QUIET KILL_AFTER`` is one rank; :func:`run` starts them all.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from llmexp.launch.executors import RankFailed, read_job, write_job
from llmexp.stage.job import StageJob, run_job
from llmexp.track.progress import Interrupted, Progress

POLL = 0.05
"""Seconds between two looks at the processes."""


class Killer:
    """Asked after each step, as a stop flag is. Sends SIGKILL to its own process in the step after ``after``.

    The moment within that step is random: in the forward or backward pass, the update, or while a
    checkpoint is written. It is dead before the step after that.
    """

    def __init__(self, after: int) -> None:
        self._after, self._asked, self._last = after, 0, time.monotonic()

    def __call__(self) -> bool:
        """Never asks to stop: a process that is killed is not asked."""
        now = time.monotonic()
        self._asked += 1
        if self._asked == self._after:
            timer = threading.Timer(random.uniform(0, now - self._last), _kill)
            timer.daemon = True
            timer.start()
        elif self._asked > self._after:
            _kill()
        self._last = now
        return False


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(
    job: StageJob, world: int, *, kill_after: int | None = None, quiet: bool = False
) -> dict[str, Any] | None:
    """Run a job's stage in ``world`` processes; its summary, or None when it was killed as asked.

    Rank 0 writes to standard error, the others to files in the run's folder. When the caller
    ends, so do the processes.

    Raises:
        RankFailed: a process ended otherwise; its error is in ``error.txt`` of the run's folder.
    """
    folder = job.run_dir / "ranks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    write_job(job, folder / "job.json")
    words = [str(folder / "job.json"), str(int(quiet)), str(kill_after or 0)]
    port = _free_port()
    ranks = [_start(words, rank, world, port, folder) for rank in range(world)]
    try:
        while all(rank.poll() is None for rank in ranks):
            time.sleep(POLL)
        first = ranks[0]
        if kill_after is None or first.poll() not in (None, -signal.SIGKILL):
            for rank in ranks:
                rank.wait()
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
        (folder / "job.json").unlink(missing_ok=True)
    codes = [rank.returncode for rank in ranks]
    if kill_after is not None and codes[0] == -signal.SIGKILL:
        return None
    if any(codes):
        raise RankFailed(f"training ended with exit code {next(filter(None, codes))}: {_error(job.run_dir)}")
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def _start(words: list[str], rank: int, world: int, port: int, folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with contextlib.ExitStack() as stack:
        # What the others say when rank 0 is killed under them is no news.
        log = stack.enter_context(open(folder / f"rank{rank}.log", "ab")) if rank else None
        return subprocess.Popen(
            [sys.executable, "-m", "llmexp.prove.child", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log or 2,
            stderr=log,
            start_new_session=True,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _error(run_dir: Path) -> str:
    """The last line of what a stage wrote about its failure."""
    file = run_dir / "error.txt"
    return file.read_text().strip().rpartition("\n")[2] if file.is_file() else f"see {run_dir}"


def main(path: Path, quiet: bool, kill_after: int) -> int:
    """Run the job as this rank; rank 0 writes the summary."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    job, owner = read_job(path), os.getppid()
    killer = Killer(kill_after) if kill_after and rank == 0 else None

    def guard() -> None:
        if os.getppid() != owner:
            raise Interrupted("the process that started the proof is gone")

    def should_stop() -> bool:
        return (killer is not None and killer()) or os.getppid() != owner

    with Progress(quiet=quiet or rank != 0) as progress:
        summary = run_job(
            job,
            progress=progress,
            should_stop=should_stop,
            guard=guard,
            parent=job.pipeline_dir,
            rank=rank,
            world=world,
        )
    if rank == 0:
        (path.parent / "summary.json").write_text(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] == "1", int(sys.argv[3])))
