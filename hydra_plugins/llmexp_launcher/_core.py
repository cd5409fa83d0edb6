"""The launcher's body: every job is composed first, then each runs as a command of its own."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf, open_dict

from llmexp.config.lines import quoted
from llmexp.config.mistakes import CompositionError
from llmexp.config.spec import Mistake
from llmexp.launch.signals import stop_on_signals
from llmexp.report.summary import headline
from llmexp.report.tables import METRICS
from llmexp.stage.reporting import report_data
from llmexp.track.masking import without_credentials
from llmexp.track.progress import INTERVAL, Interrupted

POLL = 0.1
"""Seconds between two looks at a job."""

TAIL = 4096
"""Bytes at a log's end in which its newest line is looked for."""


class JobFailed(Exception):
    """A job of a sweep ended with an exit code other than 0."""


class SweptJob(JobReturn):  # type: ignore[misc]
    """What became of a job. Looking at the result of a failed one raises nothing: the others count too."""

    @property
    def return_value(self) -> Any:
        """The exit code, or what says that the job failed."""
        return self._return_value

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self._return_value = value


def launch(launcher: Any, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
    """Compose all jobs, so that a mistake in any stops before the first; then run them."""
    record = Path(str(launcher.config.hydra.sweep.dir)) / "multirun.yaml"
    if record.is_file():
        record.write_text(without_credentials(record.read_text()))
    jobs = _composed(launcher, job_overrides, initial_job_idx)
    limit = launcher.config.sweep.max_failed
    returns: list[JobReturn] = []
    with stop_on_signals(_say) as should_stop:
        for config, overrides in jobs:
            failed = sum(r.status == JobStatus.FAILED for r in returns)
            if limit is not None and failed >= limit:
                _say(f"sweep stopped: {failed} jobs failed (sweep.max_failed={limit})")
                break
            returns.append(_run(launcher, config, list(overrides), should_stop))
            if should_stop():
                _table(returns)
                left = len(jobs) - len(returns)
                raise Interrupted(f"job {len(returns) - 1} stopped; jobs not begun: {left}")
    _table(returns)
    return returns


def _composed(
    launcher: Any, job_overrides: Sequence[Sequence[str]], first: int
) -> list[tuple[DictConfig, Sequence[str]]]:
    jobs, mistakes = [], []
    for offset, overrides in enumerate(job_overrides):
        try:
            config = launcher.hydra_context.config_loader.load_sweep_config(launcher.config, list(overrides))
        except CompositionError as error:
            told = ", ".join(overrides)
            mistakes += [
                Mistake(m.path, m.problem, m.remedy, f"job {first + offset} ({told}); {m.source}")
                for m in error.mistakes
            ]
            continue
        with open_dict(config):
            config.hydra.job.num = first + offset
            config.hydra.job.id = f"job_{first + offset}"
        jobs.append((config, overrides))
    if mistakes:
        raise CompositionError(mistakes)
    return jobs


def _run(
    launcher: Any, config: DictConfig, overrides: list[str], should_stop: Callable[[], bool]
) -> JobReturn:
    sweep_dir = Path(str(launcher.config.hydra.sweep.dir))
    folder = sweep_dir / str(config.hydra.sweep.subdir)
    folder.mkdir(parents=True, exist_ok=True)
    written: Any = OmegaConf.to_container(launcher.config.hydra.overrides.hydra, resolve=False)
    hydra_lines = [line for line in written if not line.lstrip("+").startswith(("hydra.sweep", "hydra.run"))]
    trees = [
        x
        for s in launcher.config.hydra.runtime.config_sources
        if s.provider == "command-line"
        for x in ("--config-dir", str(s.path))
    ]
    own = [
        f"hydra.run.dir={quoted(str(folder))}",
        f"hydra.job.num={config.hydra.job.num}",
        f"hydra.job.id={config.hydra.job.id}",
    ]
    number = config.hydra.job.num
    _say(f"[job {number}] {' '.join(overrides) or '(no overrides)'}  ->  {folder}")
    with open(folder / "job.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "llmexp", "run", *overrides, *hydra_lines, *own, *trees, "--traceback"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            code = _ended(process, should_stop, Relay(folder / "job.log", f"[job {number}]"))
        except BaseException:
            process.terminate()
            process.wait()
            raise
    result = SweptJob(
        overrides=overrides,
        cfg=config,
        working_dir=str(folder),
        task_name=str(OmegaConf.select(config, "hydra.job.name")),
    )
    result.status = JobStatus.COMPLETED if code == 0 else JobStatus.FAILED
    result.return_value = code if code == 0 else JobFailed(f"exit code {code}; see {folder / 'job.log'}")
    return result


def _ended(process: subprocess.Popen[bytes], should_stop: Callable[[], bool], relay: Relay) -> int:
    """The exit code of a job; one that is asked to stop saves its work first."""
    told = False
    while (code := process.poll()) is None:
        if should_stop() and not told:
            process.terminate()
            told = True
        relay.look()
        time.sleep(POLL)
    return code


class Relay:
    """Tells the newest line of a job's log every few seconds, so that a sweep is seen to move."""

    def __init__(self, log: Path, name: str, interval: float = INTERVAL) -> None:
        self._log, self._name, self._interval = log, name, interval
        self._told, self._last = time.monotonic(), ""

    def look(self) -> None:
        """Say the newest line, when it is another and the last was said long enough ago."""
        now = time.monotonic()
        if now - self._told < self._interval:
            return
        self._told = now
        with open(self._log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().decode(errors="replace").splitlines()
        newest = next((line for line in reversed(lines) if line.strip()), "")
        if newest != self._last:
            self._last = newest
            _say(f"{self._name} {newest}")


RISES = {metric.key for metric in METRICS if metric.rises} | {"val/reward", "val/exact_match"}
"""Figures of which more is better."""


def _table(returns: list[JobReturn]) -> None:
    """What became of each job, with the figures by which they are compared, and which is best."""
    found: dict[int, dict[str, float]] = {}
    for number, job in enumerate(returns):
        words = f"FAILED: {job._return_value}"
        if job.status == JobStatus.COMPLETED:
            run_dir = Path(job.working_dir)
            figures = headline(report_data(run_dir, Path(str(job.cfg.paths.outputs)) / "runs"))
            found[number] = figures
            words = "done  " + "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
        _say(f"[job {number}] {words}  {' '.join(job.overrides or [])}")
    for key, best in _best(found).items():
        _say(f"best {key}: [job {best}] {found[best][key]:.4g}  {' '.join(returns[best].overrides or [])}")


def _best(found: dict[int, dict[str, float]]) -> dict[str, int]:
    """The best job by each figure that several have; one that is not finite is never the best."""
    best = {}
    for key in dict.fromkeys(key for figures in found.values() for key in figures):
        finite = {
            n: figures[key] for n, figures in found.items() if math.isfinite(figures.get(key, math.nan))
        }
        if len(finite) > 1:
            best[key] = (max if key in RISES else min)(finite, key=lambda n: finite[n])
    return best


def _say(text: str) -> None:
    """A line for people. Who reads it may leave: the jobs go on."""
    with contextlib.suppress(OSError):
        sys.stderr.write(without_credentials(text) + "\n")
        sys.stderr.flush()
