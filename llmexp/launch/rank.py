"""One rank of a training stage: ``python -m llmexp.launch.rank OWNER < JOB``, started by a launcher."""

from __future__ import annotations

import os
import sys

from llmexp.launch.executors import end_alone, job_of, tell_failure, write_summary
from llmexp.launch.signals import stop_on_signals
from llmexp.stage.job import run_job
from llmexp.track.progress import Interrupted, Progress


def main(owner: int) -> int:
    """Run the job's stage as this rank; rank 0 writes the summary. Exit codes: as the command's."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    end_alone(owner, world)
    job = job_of(sys.stdin.read())

    def guard() -> None:
        if os.getppid() != owner:
            raise Interrupted("the process that started the ranks is gone")

    with Progress(quiet=rank != 0) as progress, stop_on_signals(lambda _: None) as stop:
        try:
            summary = run_job(
                job,
                progress=progress,
                should_stop=lambda: stop() or os.getppid() != owner,
                guard=guard,
                parent=job.pipeline_dir,
                rank=rank,
                world=world,
            )
        except Interrupted:
            return 130
        except Exception as error:
            return tell_failure(job, error, rank)
    if rank == 0:
        write_summary(job, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
