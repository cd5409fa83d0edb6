"""How far runs are, read from their folders alone, while they go on as well as after a crash."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from llmexp.stage.runs import PipelineRecord, StageLink
from llmexp.track.journal import SYSTEM, read_records
from llmexp.track.runs import JOURNAL, RUN_FILE, read_run

TAIL = 512 * 1024
"""Bytes at a journal's end that hold the latest figures."""

KILLED = "KILLED"
"""The process is gone without a word."""


@dataclass
class StageState:
    """One stage of a pipeline's run."""

    name: str
    stage: str
    """Stage type."""
    state: str
    """waiting, running, done, failed, interrupted, or KILLED when its process is gone without a word."""
    cached: bool = False
    fingerprint: str = ""
    run_dir: str = ""
    step: int | None = None
    loss: float | None = None
    reward: float | None = None
    """The mean over the samples of a policy's last step."""
    tokens_per_second: float | None = None
    seconds: float | None = None
    """Wall time so far."""
    seconds_left: float | None = None
    """None when it is not known."""
    error: str = ""


@dataclass
class RunState:
    """A pipeline's run and its stages."""

    run: str
    path: str
    title: str
    command: str
    state: str
    created: float
    """Seconds since 1970."""
    seconds: float | None
    stages: list[StageState] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass
class Latest:
    """The last figures in a journal."""

    values: dict[str, float] = field(default_factory=dict)
    step: int | None = None
    seconds_per_step: float | None = None
    """Over the steps that the process working now has taken."""


def run_state(run_dir: Path, name: str) -> RunState:
    """The state of a pipeline's run that people call ``name``."""
    record = PipelineRecord.read(run_dir)
    state = _alive(record.status, run_dir)
    seconds = record.seconds if record.seconds is not None else _seconds(run_dir)
    stages = [_stage_state(key, link, state) for key, link in record.stages.items()]
    return RunState(name, str(run_dir), record.title, record.command, state, record.created, seconds, stages)


def _stage_state(name: str, link: StageLink, pipeline: str) -> StageState:
    state = StageState(
        name,
        link.stage,
        link.status,
        link.cached,
        link.fingerprint,
        link.run_dir,
        seconds=link.seconds,
        error=link.error,
    )
    if not link.run_dir:
        return state
    run_dir = Path(link.run_dir)
    if link.status == "running":
        # The stage's process may have finished and the pipeline's died before it could publish.
        state.state = KILLED if pipeline == KILLED else _alive("running", run_dir)
        state.seconds = _seconds(run_dir)
    found = latest(run_dir / JOURNAL)
    state.step = found.step
    state.loss = found.values.get("train/loss")
    state.reward = found.values.get("rl/reward")
    state.tokens_per_second = found.values.get("perf/tokens_per_second")
    if state.state == "running":
        state.seconds_left = _left(run_dir, found, state.seconds)
    return state


def _alive(status: str, run_dir: Path) -> str:
    """``running`` only while the process lives."""
    if status != "running" or not (run_dir / RUN_FILE).is_file():
        return status
    run = read_run(run_dir)
    return {"KILLED": KILLED if run.ended is None else "interrupted", "FAILED": "failed"}.get(
        run.status, "running"
    )


def _seconds(run_dir: Path) -> float | None:
    """Wall time of a run until now, or until its last word."""
    if not (run_dir / RUN_FILE).is_file():
        return None
    run = read_run(run_dir)
    if run.ended is not None:
        return run.ended - run.started
    journal = run_dir / JOURNAL
    end = time.time() if run.status == "RUNNING" or not journal.exists() else journal.stat().st_mtime
    return max(0.0, end - run.started)


def latest(journal: Path) -> Latest:
    """The last value of each metric near a journal's end, and how fast steps went there."""
    found = Latest()
    first: tuple[int, float] | None = None
    last = 0.0
    for record, _ in read_records(journal, _tail(journal)):
        if record.get("event") == "start":
            first = None
        values = {k: v for k, v in record.get("m", {}).items() if not k.startswith(SYSTEM)}
        if not values:
            continue
        found.values |= {key: float(value) for key, value in values.items()}
        step = int(record["s"])
        if found.step is None or step > found.step:
            found.step = step
            last = record["t"] / 1000
            first = first or (step, last)
    if first is not None and found.step is not None and found.step > first[0] and last > first[1]:
        found.seconds_per_step = (last - first[1]) / (found.step - first[0])
    return found


def _tail(journal: Path) -> int:
    """The offset of the first whole line within the last bytes of a file."""
    if not journal.exists() or journal.stat().st_size <= TAIL:
        return 0
    with journal.open("rb") as file:
        file.seek(-TAIL, 2)
        file.readline()
        return file.tell()


def _left(run_dir: Path, found: Latest, seconds: float | None) -> float | None:
    """Seconds left by the budget in the run's configuration; None when it does not tell, or masks it."""
    import yaml

    config = run_dir / "artifacts" / "config.yaml"
    if not config.is_file():
        return None
    data = yaml.safe_load(config.read_text(encoding="utf-8"))
    try:
        return _of_budget(data, found, seconds)
    except ValueError:  # *** is no number
        return None


def _of_budget(data: dict[str, Any], found: Latest, seconds: float | None) -> float | None:
    trainer = data.get("trainer") or {}
    if trainer.get("max_seconds") is not None:
        return None if seconds is None else max(0.0, float(trainer["max_seconds"]) - seconds)
    total = trainer.get("max_steps")
    seq_len = (data.get("loader") or {}).get("seq_len")
    if total is None and trainer.get("max_tokens") is not None and seq_len:
        total = -(-int(trainer["max_tokens"]) // (int(trainer["global_batch"]) * int(seq_len)))
    if total is None or found.step is None or found.seconds_per_step is None:
        return None
    return max(0.0, (int(total) - found.step) * found.seconds_per_step)
