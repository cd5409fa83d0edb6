"""From a pipeline's run folder to its report and to the closing words on the terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from llmexp.report.collect import StageLink, collect
from llmexp.report.data import ReportData
from llmexp.report.page import write_figures, write_report
from llmexp.report.summary import NextCommand
from llmexp.stage.runs import PAGE, PipelineRecord
from llmexp.stage.runs import StageLink as StageRecord
from llmexp.store.artifact import Artifact
from llmexp.track.masking import mask_of, without_credentials
from llmexp.track.runs import read_run


def report_data(run_dir: Path, runs: Path, secrets: frozenset[str] = frozenset()) -> ReportData:
    """Everything that a report of this run shows; ``runs`` is the folder of all runs."""
    record = PipelineRecord.read(run_dir)
    environment = run_dir / "artifacts" / "environment.json"
    data = collect(
        title=record.title,
        stages=[_link(name, link, runs) for name, link in record.stages.items()],
        command=record.command,
        run_dir=run_dir,
        environment=json.loads(environment.read_text()) if environment.is_file() else {},
        notes=[f"{name} {link.status}: {link.error}" for name, link in record.stages.items() if link.error],
        mask=mask_of(secrets),
    )
    # The record's word counts: the pipeline's own run is still open while its report is written.
    data.status, data.seconds = record.status, record.seconds
    return data


def _link(name: str, link: StageRecord, runs: Path) -> StageLink:
    """Where the report finds a stage's artifact and the run that made it, be it an earlier one."""
    artifact = Path(link.path) if link.path and Path(link.path).is_dir() else None
    made_by = Path(link.run_dir) if link.run_dir else None
    if made_by is None and artifact is not None:
        made_by = runs / Artifact.load(artifact).manifest.run_id
    return StageLink(
        name=name,
        stage=link.stage,
        artifact=artifact,
        run_dir=made_by if made_by is not None and made_by.is_dir() else None,
        cached=link.cached,
        status=link.status,
        seconds=link.seconds,
    )


def write(run_dir: Path, data: ReportData) -> list[Path]:
    """Write ``report.html`` and its figures into the run folder; the page comes first."""
    return [write_report(data, run_dir / PAGE), *write_figures(data, run_dir / "figures")]


def next_commands(run_dir: Path, outputs: Path, tracking_uri: str | None) -> list[NextCommand]:
    """What is worth doing now, as lines to type."""
    record = PipelineRecord.read(run_dir)
    made = {link.kind for link in record.stages.values() if link.status == "done"}
    commands = []
    # The end of a name of ours is enough to find it by, and is not broken at the edge of a terminal.
    found = re.search(r"-([0-9a-f]{6})$", run_dir.name)
    name = found[1] if found else run_dir.name
    if "model" in made:
        commands.append(NextCommand("talk to the model", f"llmexp chat {name}"))
    commands.append(NextCommand("open the report", f"llmexp report {name} --open"))
    if tracking_uri is not None:
        commands.append(NextCommand("see the runs in MLflow", _mlflow_command(run_dir, tracking_uri)))
    commands.append(
        NextCommand(
            "train on your own folder",
            "llmexp data=text_files data.path=YOUR_FOLDER model=tiny trainer=short",
        )
    )
    for link in record.stages.values():
        if link.kind == "export" and link.status == "done":
            commands.append(NextCommand("use it in transformers", os.path.relpath(link.path)))
    return [NextCommand(step.what, _typed(step.command, outputs)) for step in commands]


def _typed(command: str, outputs: Path) -> str:
    """The command as it works in this shell: outputs may lie elsewhere, and the venv may not be active."""
    if outputs != Path("outputs") and command.startswith(("llmexp chat", "llmexp report")):
        command = f"{command} --outputs {shlex.quote(str(outputs))}"
    if command.startswith(("llmexp ", "mlflow ")) and shutil.which(command.split()[0]) is None:
        command = f"{os.path.relpath(Path(sys.executable).parent)}/{command}"
    return command


def _mlflow_command(run_dir: Path, uri: str) -> str:
    """What to type, and the address of the table of runs.

    The address matters: MLflow's start page leads to an experiment's dashboards for agents, which
    are empty here.
    """
    remotes = read_run(run_dir).remote.values()
    ids = [remote["experiment_id"] for remote in remotes if "experiment_id" in remote]
    page = f"/#/experiments/{ids[0]}/runs" if ids else ""
    uri = without_credentials(uri)
    if uri.startswith(("http://", "https://")):
        return uri.rstrip("/") + page
    return f"mlflow ui --backend-store-uri {_beside(uri)}  # http://127.0.0.1:5000{page}"


def _beside(uri: str) -> str:
    """A database below this folder by its relative path, which is shorter."""
    file = uri.removeprefix("sqlite:///")
    here = os.getcwd() + os.sep
    return f"sqlite:///{file.removeprefix(here)}" if file != uri and file.startswith(here) else uri
