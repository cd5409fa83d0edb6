"""Where a stage runs: in this process, or in several processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from llmexp.config.spec import as_data
from llmexp.launch.config import LauncherSpec, ProcessesSpec
from llmexp.stage.context import External, Input
from llmexp.stage.job import StageJob, run_job
from llmexp.stage.runner import Execute
from llmexp.store.machine import cores
from llmexp.track.progress import Interrupted, Progress
from llmexp.track.tracker import Tracker

POLL = 0.2
"""Seconds between two looks at the ranks."""
STOPPED = 130
"""Exit code of a rank that stopped at a safe point because it was told to."""
SETTLE = 1.0
"""Seconds that the other ranks get to write what they know when one has failed."""
GRACE = 60.0
"""Seconds that the other ranks get to end when one has stopped: by then the checkpoint is there."""
RANKS = "ranks"
"""Folder of the ranks' logs and messages, in a run's folder."""
SUMMARY = "summary.json"


class RankFailed(Exception):
    """A rank ended before its stage did."""

    exit_code: int | None = None
    """The rank's own, which becomes the command's when it says that a person made a mistake."""


def executor(launcher: LauncherSpec) -> Execute:
    """The function that executes stages under a launcher."""
    if isinstance(launcher, ProcessesSpec):
        return Processes(launcher.gpus_per_node)
    return run_job


class Processes:
    """Runs training stages in ``world`` processes of this machine, every other stage in this one."""

    def __init__(self, world: int) -> None:
        self.world = world

    def __call__(
        self,
        job: StageJob,
        *,
        progress: Progress,
        should_stop: Callable[[], bool],
        guard: Callable[[], None],
        parent: Tracker,
    ) -> dict[str, Any]:
        """Start the ranks, forward a stop to them, and return what rank 0 says."""
        if not job.spec.trains:
            return run_job(job, progress=progress, should_stop=should_stop, guard=guard, parent=parent)
        with started(job, self.world, "llmexp.launch.rank") as ranks:
            _watch(ranks, job.run_dir / RANKS, progress, should_stop, guard)
        return summary_of(job)


@contextlib.contextmanager
def started(job: StageJob, world: int, module: str, *words: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The ranks of a job's stage, each ``python -m module OWNER *words``; none outlives the context.

    OWNER is this process: a rank's parent may be gone before it looks. A rank reads the job, which
    holds resolved values, from standard input: a file without a name, so that no death of a process
    leaves it behind. Rank 0 writes to standard error, the others to files in ``ranks`` of the run's
    folder.
    """
    folder = job.run_dir / RANKS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).unlink(missing_ok=True)
    command = [sys.executable, "-m", module, str(os.getpid()), *words]
    text, port = job_text(job).encode(), _free_port()
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(world):
            ranks.append(_start(command, text, rank, world, port, folder))
        yield ranks
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()


def _start(
    command: list[str], job: bytes, rank: int, world: int, port: int, folder: Path
) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if world > 1:  # one alone computes with as many threads as without a launcher
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // world)))
    with (
        open(folder / f"rank{rank}.log", "ab") if rank else contextlib.nullcontext() as log,
        _nameless() as stdin,
    ):
        stdin.write(job)
        stdin.seek(0)
        return subprocess.Popen(
            command,
            env=environment,
            stdin=stdin,
            stdout=log or 2,
            stderr=log,
            start_new_session=True,
        )


def _nameless() -> BinaryIO:
    """A file without a name: in memory where the system has that, so that no disk sees what is in it."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("job"), "w+b")
    return tempfile.TemporaryFile()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def summary_of(job: StageJob) -> dict[str, Any]:
    """What rank 0 said of the stage when it was done."""
    found: dict[str, Any] = json.loads((job.run_dir / RANKS / SUMMARY).read_text())
    return found


def _watch(
    ranks: list[subprocess.Popen[bytes]],
    folder: Path,
    progress: Progress,
    should_stop: Callable[[], bool],
    guard: Callable[[], None],
) -> None:
    """Wait for all ranks; the first that fails ends the others.

    Ranks that are told to stop get the time that they need: a safe point may be a long step or
    evaluation away. Who cannot wait sends a second SIGINT, and a rank that hangs is ended by its
    peers' timeout.
    """
    told, ended = False, None
    while any(rank.poll() is None for rank in ranks):
        guard()
        if should_stop() and not told:
            told = True
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
        failed = _first_failed(ranks)
        code = ranks[failed].returncode if failed is not None else 0
        told = told or code == STOPPED  # the ranks agreed to stop, whoever was told first
        if code < 0 or (code and not told):
            break  # once told to stop, all end together, unless a rank was not yet ready to hear it
        if code:
            ended = ended or time.monotonic()
            if time.monotonic() - ended > GRACE:
                break
        time.sleep(POLL)
    failed = _first_failed(ranks)
    if failed is None:
        return
    code = ranks[failed].returncode
    if code == STOPPED or (told and code == -signal.SIGTERM):
        raise Interrupted("the ranks stopped at a safe point")
    time.sleep(SETTLE)
    text = f"rank {failed} {_ending(code, failed, folder)}"
    progress.line(f"  {text}")
    error = RankFailed(text)
    error.exit_code = code
    raise error


def _first_failed(ranks: list[subprocess.Popen[bytes]]) -> int | None:
    """The rank that failed; of several, one that a signal ended: the others lost their connection to it."""
    codes = {index: rank.poll() for index, rank in enumerate(ranks)}
    failed = {index: code for index, code in codes.items() if code}
    return min(failed, key=lambda index: (failed[index] == STOPPED, failed[index] > 0, index), default=None)


def _ending(code: int, rank: int, folder: Path) -> str:
    """How a rank ended, and where more is told."""
    if code < 0:
        name = signal.Signals(-code).name
        why = " (the system does that when memory runs out)" if name == "SIGKILL" else ""
        return f"was ended by {name}{why}; the same command goes on from the last checkpoint"
    told = folder / f"rank{rank}.log" if rank else folder.parent / "error.txt"
    return f"ended with exit code {code}; see {told}"


def job_text(job: StageJob) -> str:
    """A job as JSON; it holds resolved values, so it is not for others to read."""
    data = {
        "name": job.name,
        "kind": job.kind,
        "spec": as_data(job.spec),
        "root": as_data(replace(job.root, stages={}, pipeline=None, experiment=None)),
        "inputs": {need: _written(value) for need, value in job.inputs.items()},
        "output": _written(job.output),
        "out": str(job.out),
        "run_dir": str(job.run_dir),
        "pipeline_dir": str(job.pipeline_dir),
        "secrets": sorted(job.secrets),
        "secret_paths": sorted(job.secret_paths),
    }
    return json.dumps(data)


def _written(value: Input | dict[str, Input]) -> Any:
    if isinstance(value, dict):
        return {"many": {name: _written(one) for name, one in value.items()}}
    return {"kind": value.kind, "fingerprint": value.fingerprint, "path": str(value.path)}


def job_of(text: str) -> StageJob:
    """The inverse of :func:`job_text`."""
    from llmexp.config.typed import spec_from

    data = json.loads(text)
    return StageJob(
        name=data["name"],
        kind=data["kind"],
        spec=spec_from(data["spec"]),
        root=spec_from(data["root"]),
        inputs={need: _read(value) for need, value in data["inputs"].items()},
        output=_read(data["output"]),
        out=Path(data["out"]),
        run_dir=Path(data["run_dir"]),
        pipeline_dir=Path(data["pipeline_dir"]),
        secrets=frozenset(data["secrets"]),
        secret_paths=frozenset(data["secret_paths"]),
    )


def _read(value: Any) -> Any:
    if "many" in value:
        return {name: _read(one) for name, one in value["many"].items()}
    folder = Path(value["path"])
    if (folder / "manifest.json").is_file():
        from llmexp.store.artifact import Artifact

        return Artifact.load(folder)
    return External(value["kind"], value["fingerprint"], folder)
