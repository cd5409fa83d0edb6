"""What a reference to a run, a stage of one, or an artifact stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.cli.places import Places, run_name
from llmexp.config.mistakes import UserError
from llmexp.stage.given import meaning
from llmexp.stage.runs import PipelineRecord, StageLink
from llmexp.store.artifact import Artifact
from llmexp.store.errors import Damaged
from llmexp.track.runs import RUN_FILE, read_metrics


@dataclass(frozen=True)
class Step:
    """One stage of a run, or an artifact with the run that made it, as far as that is still there."""

    label: str
    stage: str
    """Stage type."""
    link: StageLink | None
    artifact: Artifact | None
    run_dir: Path | None
    """Folder of the run that made, or makes, the artifact."""

    def config(self) -> dict[str, Any]:
        """The composition: as the run's folder has it, secrets masked, else as the manifest has it."""
        written = self.run_dir / "artifacts" / "config.yaml" if self.run_dir else None
        if written is not None and written.is_file():
            import yaml

            found: dict[str, Any] = yaml.safe_load(written.read_text(encoding="utf-8"))
            return found
        return dict(self.artifact.manifest.config) if self.artifact else {}

    def inputs(self) -> dict[str, list[str]]:
        """Fingerprints by need."""
        if self.artifact is not None:
            return {
                need: [one] if isinstance(one, str) else list(one)
                for need, one in self.artifact.manifest.inputs.items()
            }
        written = self.run_dir / "artifacts" / "lineage.json" if self.run_dir else None
        if written is None or not written.is_file():
            return {}
        return {
            need: [one["fingerprint"] for one in several]
            for need, several in json.loads(written.read_text())["inputs"].items()
        }

    def metrics(self) -> dict[str, float]:
        """The last value of each metric, system metrics left out."""
        if self.run_dir is None:
            return {}
        series = read_metrics(self.run_dir)
        return {
            key: s.values[-1]
            for key, s in sorted(series.items())
            if s.values and not key.startswith("system/")
        }

    def summary(self) -> dict[str, Any]:
        """What the stage said of its result."""
        return dict(self.artifact.manifest.summary) if self.artifact else {}


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's run with all of its stages."""

    label: str
    run_dir: Path
    record: PipelineRecord
    steps: dict[str, Step]


Subject = Pipeline | Step


def subject(reference: str, places: Places) -> Subject:
    """The run, stage of a run or artifact that a person means.

    Raises:
        UserError: it is none of them.
        Ambiguous: it is the start of several fingerprints.
        Damaged: it is an artifact whose manifest is broken.
    """
    found = subject_or_folder(reference, places)
    if isinstance(found, Path):
        raise UserError(
            f"'{reference}' is a folder, and neither a run nor an artifact. See `llmexp status` and "
            "`llmexp store list`."
        )
    return found


def subject_or_folder(reference: str, places: Places) -> Subject | Path:
    """As :func:`subject`, or the folder from elsewhere that the reference names."""
    try:
        found = meaning(reference, places.store, places.runs)
    except UserError as error:
        raise UserError(
            f"'{reference}' is neither a run nor an artifact: {error} See also `llmexp store list`."
        ) from error
    if isinstance(found, Path):
        return found
    if isinstance(found, Artifact):
        return of_artifact(found, places)
    run = of_run(found.run_dir, places)
    return run if found.stage is None else run.steps[found.stage]


def of_artifact(artifact: Artifact, places: Places) -> Step:
    """An artifact, and its run where that is still there."""
    return Step(
        f"{artifact.kind}/{artifact.fingerprint[:12]}",
        artifact.manifest.stage,
        None,
        artifact,
        _maker(artifact, places),
    )


def of_run(run_dir: Path, places: Places) -> Pipeline:
    """A run with all its stages."""
    record = PipelineRecord.read(run_dir)
    name = run_name(run_dir, places)
    steps = {}
    for key, link in record.stages.items():
        artifact = linked(link)
        own = Path(link.run_dir) if link.run_dir else None
        maker = own if own is not None and own.is_dir() else _maker(artifact, places) if artifact else None
        steps[key] = Step(f"{name}/{key}", link.stage, link, artifact, maker)
    return Pipeline(name, run_dir, record, steps)


def linked(link: StageLink) -> Artifact | None:
    """The artifact of a stage that is done, when it is still there and whole enough to be read."""
    if link.status != "done" or not link.path:
        return None
    try:
        return Artifact.load(Path(link.path))
    except Damaged:
        return None


def _maker(artifact: Artifact, places: Places) -> Path | None:
    """Folder of the run that made an artifact; None when it is gone or elsewhere."""
    run_id = artifact.manifest.run_id
    folder = places.runs / run_id
    return folder if run_id and (folder / RUN_FILE).is_file() else None
