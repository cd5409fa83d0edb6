"""One rank of a training stage: ``python -m llmexp.launch.rank OWNER < JOB``, started by a launcher."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from llmexp.launch.executors import POLL, RANKS, STOPPED, SUMMARY, job_of
from llmexp.launch.mistakes import is_mistake
from llmexp.launch.signals import stop_on_signals
from llmexp.stage.job import StageJob, run_job
from llmexp.track.masking import mask_of
from llmexp.track.progress import Interrupted, Progress


def run_rank(owner: int, *, should_stop: Callable[[], bool], quiet: bool = False) -> int:
    """Run the stage of the job on standard input as this rank; rank 0 writes the summary.

    ``owner`` is the process that started the ranks: without it they end. ``should_stop`` is asked
    after each step. Exit codes: as the command's.
    """
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _end_alone(owner, world)
    job = job_of(sys.stdin.read())

    def guard() -> None:
        if os.getppid() != owner:
            raise Interrupted("the process that started the ranks is gone")

    with Progress(quiet=quiet or rank != 0) as progress:
        try:
            summary = run_job(
                job,
                progress=progress,
                should_stop=lambda: should_stop() or os.getppid() != owner,
                guard=guard,
                parent=job.pipeline_dir,
                rank=rank,
                world=world,
            )
            if rank == 0:
                _write_summary(job, summary)
        except Interrupted:
            return STOPPED
        except Exception as error:
            return tell_failure(job, error, rank)
    return 0


def _ranks_met() -> bool:
    """Whether this rank has joined the others; asked while the module is not loaded, or not yet whole."""
    joined = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return joined is not None and joined()


def _end_alone(owner: int, world: int) -> None:
    """End this rank when the command is gone before all ranks met: nobody starts the others any more."""

    def watch() -> None:
        while not _ranks_met():
            if os.getppid() != owner:
                os._exit(STOPPED)
            time.sleep(POLL)

    if world > 1:
        threading.Thread(target=watch, daemon=True).start()


def _write_summary(job: StageJob, summary: dict[str, Any]) -> None:
    """Say, as rank 0, what the stage came to."""
    (job.run_dir / RANKS / SUMMARY).write_text(json.dumps(summary))


def tell_failure(job: StageJob, error: Exception, rank: int) -> int:
    """Say why a rank ends, without what is secret; its exit code.

    Rank 0 speaks to the terminal, and its traceback is in ``error.txt``; the others write theirs.
    """
    mistake = is_mistake(error)
    text = str(error) if mistake else f"{type(error).__name__}: {error}"
    if rank and not mistake:
        text = "".join(traceback.format_exception(error)).rstrip()
    sys.stderr.write(mask_of(job.secrets)(text) + "\n")
    return 2 if mistake else 1


def main(owner: int) -> int:
    """A rank that a signal stops at a safe point."""
    with stop_on_signals(lambda _: None) as stop:
        return run_rank(owner, should_stop=stop)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
