"""A report's data, read from what a pipeline left: artifacts and run folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmexp.evaluate import result as evaluation
from llmexp.report.data import Curve, ReportData, StageRow
from llmexp.store.artifact import Artifact
from llmexp.track.environment import MAIN_PACKAGES
from llmexp.track.masking import Mask, masked
from llmexp.track.runs import RUN_FILE, read_metrics, read_run

STATUS = {"RUNNING": "running", "FINISHED": "done", "FAILED": "failed", "KILLED": "interrupted"}
"""A run's status in words."""

SHOWN = ("train/loss", "val/", "rl/reward", "rl/kl", "perf/tokens_per_second")
"""Beginnings of the keys whose curves a report keeps."""


@dataclass(frozen=True, kw_only=True)
class StageLink:
    """Where a pipeline's run finds what one of its stages made."""

    name: str
    """Its name in the pipeline."""
    stage: str
    """The stage type that it is."""
    artifact: Path | None = None
    """Folder of the artifact; None when there is none (yet)."""
    run_dir: Path | None = None
    """Folder of the run that made the artifact, also when that was an earlier one; None when it is gone."""
    cached: bool = False
    """The artifact was found in the store."""
    status: str = ""
    """done · running · failed · interrupted · waiting; empty = what the run folder says."""
    seconds: float | None = None
    """Wall time; None = what the run folder says."""


def collect(
    *,
    title: str,
    stages: Iterable[StageLink],
    command: str = "",
    run_dir: Path | None = None,
    environment: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
    mask: Mask = str,
) -> ReportData:
    """Everything that a report of a pipeline's run shows.

    ``run_dir`` is the pipeline's own folder (status and times), ``environment`` what the tracker wrote
    of it (`environment.json`), or any names and values. Artifacts and run folders that are gone, and
    curves of runs that have none, are left out. ``mask`` is laid over every text: it hides the values
    that came from the environment.

    Raises:
        Damaged: an artifact's manifest, or its evaluation, is not what was written.
    """
    data = ReportData(title=title, command=command, environment=told(environment or {}), notes=list(notes))
    for link in stages:
        artifact = _there(link.artifact)
        data.stages.append(stage_row(link, artifact))
        if artifact and evaluation.FILE in artifact.manifest.files:
            data.evaluation = json.loads(artifact.file(evaluation.FILE).read_text(encoding="utf-8"))
    if run_dir is not None and (run_dir / RUN_FILE).exists():
        _add_run(data, run_dir)
    return ReportData.from_json(masked(data.as_json(), mask))


def stage_row(link: StageLink, artifact: Artifact | None) -> StageRow:
    """One stage: its artifact's manifest, and the curves and times of the run that made it."""
    row = StageRow(name=link.name, stage=link.stage, cached=link.cached, status=link.status)
    row.seconds = link.seconds
    if artifact:
        manifest = artifact.manifest
        row.kind, row.fingerprint, row.path = manifest.kind, manifest.fingerprint, str(artifact.path)
        row.inputs = {need: [f] if isinstance(f, str) else list(f) for need, f in manifest.inputs.items()}
        row.summary, row.config = manifest.summary, manifest.config
        row.status = row.status or "done"
    if link.run_dir is not None and (link.run_dir / RUN_FILE).exists():
        run = read_run(link.run_dir)
        row.status = row.status or STATUS.get(run.status, run.status)
        if row.seconds is None and run.ended is not None:
            row.seconds = run.ended - run.started
        row.curves = shown_curves(link.run_dir)
    row.status = row.status or "waiting"
    return row


def shown_curves(run_dir: Path) -> dict[str, Curve]:
    """The metrics of a run that a report shows, by key; steps replayed after a rollback left out."""
    return {
        key: [[float(step), value] for step, value in zip(series.steps, series.values, strict=True)]
        for key, series in read_metrics(run_dir).items()
        if key.startswith(SHOWN) and "@retry" not in key
    }


def told(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of a tracked environment that a reader looks for; any other mapping as it is."""
    if "packages" not in environment:
        return dict(environment)
    git, packages = environment.get("git", {}), environment["packages"]
    commit = git.get("commit", "")[:12] + (" with changes" if git.get("dirty") == "true" else "")
    devices = ", ".join(environment.get("devices", [])) or "no GPU"
    lines = {
        "Machine": f"{environment.get('host', '')}, {environment.get('cpus', '?')} CPU cores, {devices}",
        "Memory": f"{environment['memory_bytes'] / 2**30:.1f} GiB" if "memory_bytes" in environment else "",
        "Platform": environment.get("platform", ""),
        "Python": environment.get("python", ""),
        "Code": f"{commit} ({git.get('branch', '')})" if commit else "",
        "SLURM job": environment.get("slurm", {}).get("SLURM_JOB_ID", ""),
        "Packages": " · ".join(f"{name} {packages[name]}" for name in MAIN_PACKAGES if name in packages),
    }
    return {name: text for name, text in lines.items() if text}


def _there(path: Path | None) -> Artifact | None:
    """The artifact in a folder; None where the folder is gone (pruned), or was never named."""
    return Artifact.load(path) if path is not None and path.is_dir() else None


def _add_run(data: ReportData, run_dir: Path) -> None:
    """Name, status and times of the pipeline's own run."""
    run = read_run(run_dir)
    data.run_id = f"{run_dir.parent.name}/{run_dir.name}"
    data.status = STATUS.get(run.status, run.status)
    if run.started:
        data.created = f"{datetime.fromtimestamp(run.started, UTC):%Y-%m-%d %H:%M} UTC"
    if run.ended is not None:
        data.seconds = run.ended - run.started
