"""A training stage in processes of its own, which can be made to die in the middle of a step.

``python -m llmexp.prove.child OWNER QUIET KILL_AFTER < JOB`` is one rank; :func:`run` starts them all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from llmexp.launch.executors import RankFailed, started, summary_of
from llmexp.launch.rank import run_rank
from llmexp.stage.job import StageJob

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

    Raises:
        RankFailed: a process ended otherwise; its error is in ``error.txt`` of the run's folder.
    """
    words = str(int(quiet)), str(kill_after or 0)
    with started(job, world, "llmexp.prove.child", *words) as ranks:
        while all(rank.poll() is None for rank in ranks):
            time.sleep(POLL)
        if kill_after is None or ranks[0].poll() not in (None, -signal.SIGKILL):
            for rank in ranks:
                rank.wait()
    codes = [rank.returncode for rank in ranks]
    if kill_after is not None and codes[0] == -signal.SIGKILL:
        return None
    if any(codes):
        code = next(filter(None, codes))
        error = RankFailed(f"training ended with exit code {code}: {_error(job.run_dir)}")
        error.exit_code = code
        raise error
    return summary_of(job)


def _error(run_dir: Path) -> str:
    """The last line of what a stage wrote about its failure."""
    file = run_dir / "error.txt"
    return file.read_text().strip().rpartition("\n")[2] if file.is_file() else f"see {run_dir}"


def main(owner: int, quiet: bool, kill_after: int) -> int:
    """A rank that no signal stops, and that may be killed."""
    kills = kill_after and int(os.environ["RANK"]) == 0
    return run_rank(owner, should_stop=Killer(kill_after) if kills else lambda: False, quiet=quiet)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2] == "1", int(sys.argv[3])))
