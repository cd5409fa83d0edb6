"""From a pipeline's run folder to its report and to the closing words on the terminal."""

from __future__ import annotations

import json
from pathlib import Path

from llmexp.report.collect import StageLink, collect
from llmexp.report.data import ReportData
from llmexp.report.page import write_report
from llmexp.report.summary import NextCommand
from llmexp.stage.runs import PipelineRecord
from llmexp.store.artifact import Artifact


def report_data(run_dir: Path) -> ReportData:
    """Everything that a report of this run shows."""
    record = PipelineRecord.read(run_dir)
    runs = run_dir.parent.parent
    links = []
    for name, link in record.stages.items():
        artifact = Path(link.path) if link.path else None
        made_by = Path(link.run_dir) if link.run_dir else None
        if made_by is None and artifact is not None:
            earlier = runs / Artifact.load(artifact).manifest.run_id
            made_by = earlier if earlier.is_dir() else None
        links.append(
            StageLink(
                name=name,
                stage=link.stage,
                artifact=artifact,
                run_dir=made_by,
                cached=link.cached,
                status=link.status,
            )
        )
    environment = run_dir / "artifacts" / "environment.json"
    return collect(
        title=record.title,
        stages=links,
        command=record.command,
        run_dir=run_dir,
        environment=json.loads(environment.read_text()) if environment.is_file() else {},
    )


def write(run_dir: Path) -> Path:
    """Write ``report.html`` into the run folder."""
    return write_report(report_data(run_dir), run_dir / "report.html")


def next_commands(run_dir: Path, outputs: Path, tracking_uri: str | None) -> list[NextCommand]:
    """What is worth doing now, as lines to type."""
    record = PipelineRecord.read(run_dir)
    made = {link.kind for link in record.stages.values() if link.status == "done"}
    commands = []
    if "model" in made:
        commands.append(NextCommand("talk to the model", f"llmexp chat {run_dir.name}"))
    commands.append(NextCommand("open the report", f"llmexp report {run_dir.name} --open"))
    if tracking_uri is not None:
        commands.append(
            NextCommand("see the runs in MLflow", f"mlflow ui --backend-store-uri {tracking_uri}")
        )
    commands.append(
        NextCommand("train on your own folder", "llmexp data=text_files data.path=YOUR_FOLDER model=tiny")
    )
    if outputs != Path("outputs"):
        commands = [
            NextCommand(
                c.what,
                f"{c.command} --outputs {outputs}"
                if c.command.startswith(("llmexp chat", "llmexp report"))
                else c.command,
            )
            for c in commands
        ]
    return commands
