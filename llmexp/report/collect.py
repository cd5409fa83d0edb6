"""A report's data, read from what a pipeline left: artifacts and run folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmexp.report.data import Curve, ReportData, StageRow
from llmexp.store.artifact import Artifact
from llmexp.track.masking import Mask, masked
from llmexp.track.runs import RUN_FILE, read_metrics, read_run

EVALUATION = "evaluation.json"
"""The file of an evaluation's artifact that holds its figures."""

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

    ``run_dir`` is the pipeline's own folder (status and times), ``mask`` is laid over every text:
    it hides the values that came from the environment.

    Raises:
        Damaged: an artifact's manifest, or its evaluation, is not what was written.
    """
    data = ReportData(title=title, command=command, environment=dict(environment or {}), notes=list(notes))
    for link in stages:
        artifact = Artifact.load(link.artifact) if link.artifact else None
        data.stages.append(stage_row(link, artifact))
        if artifact and EVALUATION in artifact.manifest.files:
            data.evaluation = json.loads(artifact.file(EVALUATION).read_text(encoding="utf-8"))
    if run_dir is not None and (run_dir / RUN_FILE).exists():
        _add_run(data, run_dir)
    return ReportData.from_json(masked(data.as_json(), mask))


def stage_row(link: StageLink, artifact: Artifact | None) -> StageRow:
    """One stage: its artifact's manifest, and the curves and times of the run that made it."""
    row = StageRow(name=link.name, stage=link.stage, cached=link.cached, status=link.status)
    if artifact:
        manifest = artifact.manifest
        row.kind, row.fingerprint, row.path = manifest.kind, manifest.fingerprint, str(artifact.path)
        row.inputs = {need: [f] if isinstance(f, str) else list(f) for need, f in manifest.inputs.items()}
        row.summary, row.config = manifest.summary, manifest.config
        row.status = row.status or "done"
    if link.run_dir is not None and (link.run_dir / RUN_FILE).exists():
        run = read_run(link.run_dir)
        row.status = row.status or STATUS.get(run.status, run.status)
        row.seconds = run.ended - run.started if run.ended is not None else None
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


def _add_run(data: ReportData, run_dir: Path) -> None:
    """Name, status and times of the pipeline's own run."""
    run = read_run(run_dir)
    data.run_id = run.name
    data.status = STATUS.get(run.status, run.status)
    if run.started:
        data.created = f"{datetime.fromtimestamp(run.started, UTC):%Y-%m-%d %H:%M} UTC"
    if run.ended is not None:
        data.seconds = run.ended - run.started
