"""Run folders: made once, found again by whoever goes on with their work, named by people."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from filelock import SoftFileLease

from llmexp.config.mistakes import UserError, nearest
from llmexp.store.artifact import Artifact
from llmexp.store.store import Store
from llmexp.track.runs import read_run, write_json

PIPELINE = "pipeline.json"
PAGE = "report.html"
SWEEPS = "sweeps"
"""Folder of the sweeps' jobs, beside that of the runs."""


@dataclass(kw_only=True)
class StageLink:
    """One stage in a pipeline's record."""

    stage: str
    kind: str
    fingerprint: str
    needs: dict[str, Any] = field(default_factory=dict)
    status: str = "waiting"
    """waiting · running · done · failed · interrupted"""
    cached: bool = False
    path: str = ""
    """Folder of the artifact."""
    run_dir: str = ""
    """Folder of the run that made, or makes it; empty for a cached one."""
    seconds: float | None = None
    error: str = ""


@dataclass(kw_only=True)
class PipelineRecord:
    """``pipeline.json``: what one command ran."""

    title: str
    command: str
    created: float
    overrides: list[str]
    stages: dict[str, StageLink]
    status: str = "running"
    seconds: float | None = None

    def write(self, run_dir: Path) -> None:
        """Write whole or not at all."""
        data = asdict(self) | {"place": os.path.abspath(run_dir)}
        for link in data["stages"].values():
            link["run_dir"] = link["run_dir"] and os.path.abspath(link["run_dir"])
        write_json(run_dir / PIPELINE, data)

    @classmethod
    def read(cls, run_dir: Path) -> PipelineRecord:
        """The record of a pipeline's run folder, which may have moved with what lies beside it."""
        data = json.loads((run_dir / PIPELINE).read_text())
        place, here = data.pop("place", None), os.path.abspath(run_dir)
        stages = {name: StageLink(**link) for name, link in data.pop("stages").items()}
        if place not in (None, here):
            for link in stages.values():
                link.path, link.run_dir = (_moved(path, place, here) for path in (link.path, link.run_dir))
        return cls(stages=stages, **data)


def _moved(path: str, place: str, here: str) -> str:
    """Where a path lies now, if it lies as it did to the folder that was at ``place`` and is ``here``."""
    beside = path and os.path.normpath(os.path.join(here, os.path.relpath(path, place)))
    return beside if os.path.exists(beside) else path


def new_folder(runs: Path, title: str) -> Path:
    """A fresh run folder; its making is atomic, so that two commands of one second get two."""
    now = time.localtime()
    while True:
        name = f"{time.strftime('%H-%M-%S', now)}-{safe(title)}-{secrets.token_hex(3)}"
        folder = runs / time.strftime("%Y-%m-%d", now) / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder


def safe(name: str) -> str:
    """A name that can stand unquoted in an override and in a shell."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


def run_name(run_dir: Path, runs: Path) -> str:
    """A run folder as a manifest names it: below ``runs`` where it lies there, else whole."""
    run_dir = run_dir.absolute()
    return str(run_dir.relative_to(runs.absolute()) if run_dir.is_relative_to(runs.absolute()) else run_dir)


FOLDER_LEASE_SECONDS = 30.0
"""How long a silent command on another machine keeps its run folder. All commands must agree."""


def folder_lease(run_dir: Path) -> SoftFileLease:
    """The right to write a run folder, not yet acquired; a command holds it from its start to its end."""
    return SoftFileLease(run_dir / ".lease", lease_duration=FOLDER_LEASE_SECONDS, thread_local=False)


class Unfinished:
    """Marks that lead from an identity (a fingerprint) to the run folder that works on it.

    ``root`` is the store in which they lie. A run folder beside it is marked relative to it: outputs
    that were moved, or copied, lead to their own runs.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root.absolute() / ".unfinished"

    def get(self, identity: str) -> Path | None:
        """The run folder of unfinished work whose process is gone, or None."""
        try:
            run_dir = self.marked(identity)
            run = read_run(run_dir)
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return None if run.status in ("RUNNING", "FINISHED") else run_dir

    def marked(self, identity: str) -> Path:
        """The run folder that a mark leads to. Raises FileNotFoundError where there is no mark."""
        return Path(os.path.normpath(self.folder / (self.folder / identity).read_text(encoding="utf-8")))

    def all(self) -> Iterator[Path]:
        """The run folders that marks lead to."""
        for mark in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if mark.name.startswith("."):  # it is being written
                continue
            with contextlib.suppress(FileNotFoundError):  # its run has ended meanwhile
                yield self.marked(mark.name)

    def put(self, identity: str, run_dir: Path) -> None:
        """Mark work as begun; atomic and durable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{identity}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            beside = run_dir.absolute().is_relative_to(self.folder.parents[1])
            file.write(os.path.relpath(run_dir, self.folder) if beside else str(run_dir.absolute()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.folder / identity)

    def done(self, identity: str) -> None:
        """The work is finished."""
        (self.folder / identity).unlink(missing_ok=True)


def pipeline_runs(runs: Path) -> list[Path]:
    """All pipeline run folders, those of sweeps' jobs included, oldest first."""
    found = [*runs.glob(f"*/*/{PIPELINE}"), *(runs.parent / SWEEPS).glob(f"*/*/*/{PIPELINE}")]
    return sorted((path.parent for path in found), key=lambda path: PipelineRecord.read(path).created)


def name_of(run_dir: Path, runs: Path) -> str:
    """What a person types to mean a run: its folder without the part that all share."""
    folder = run_dir.absolute()
    for base in (runs.absolute(), runs.parent.absolute()):
        if folder.is_relative_to(base):
            return folder.relative_to(base).as_posix()
    return str(run_dir)


def find_run(reference: str, runs: Path) -> Path:
    """The pipeline's run folder that a person means: a path, a part of its name, or ``last``.

    Raises:
        UserError: none, or several, are meant.
    """
    folder = Path(reference).expanduser()
    # A whole name comes before a part of one: job 1 of a sweep is also the start of job 10.
    for run_dir in (folder, runs / reference, runs.parent / reference):
        if (run_dir / PIPELINE).is_file():
            return run_dir
    if (folder.parent / PIPELINE).is_file() and (folder / "run.json").is_file():
        return folder.parent
    known = pipeline_runs(runs)
    if reference == "last" and known:
        return known[-1]
    matches = [path for path in known if reference in name_of(path, runs)]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(name_of(path, runs) for path in (matches or known)[-5:]) or "none yet"
    problem = "several runs match" if matches else f"there is no run in {runs} that matches"
    raise UserError(f"{problem} '{reference}'. Runs: {names}. See `llmexp status`.")


def last_with(kinds: Iterable[str], store: Store, runs: Path) -> Path:
    """The newest run that made, or found, an artifact of one of ``kinds``.

    Raises:
        UserError: there is none.
    """
    wanted = set(kinds)
    for run_dir in reversed(pipeline_runs(runs)):
        if any(artifact.kind in wanted for _, artifact in artifacts_of(run_dir, store)):
            return run_dir
    raise UserError(f"no run in {runs} has a {' or '.join(sorted(wanted))} yet. See `llmexp status`.")


class RunPart(NamedTuple):
    """A pipeline's run, or one stage of it."""

    run_dir: Path
    stage: str | None = None


def part_at(folder: Path, runs: Path) -> RunPart | None:
    """The run, or the stage of one, whose folder this is.

    Raises:
        UserError: it is a folder of a run, and no stage's.
    """
    if (folder / PIPELINE).is_file():
        return RunPart(folder)
    if not (folder.parent / PIPELINE).is_file():
        return None
    # A stage that was found in the store has no folder below the run.
    there = folder.is_dir() or folder.name in PipelineRecord.read(folder.parent).stages
    return RunPart(folder.parent, stage_named(folder.name, folder.parent, runs)) if there else None


def find_part(reference: str, runs: Path) -> RunPart:
    """The run, or the stage of one, that ``RUN`` or ``RUN/STAGE`` means.

    Raises:
        UserError: there is no such run, or the run has no such stage.
    """
    found = part_at(Path(reference).expanduser(), runs)
    if found is not None:
        return found
    head, _, tail = reference.rstrip("/").rpartition("/")
    try:
        return RunPart(find_run(reference, runs))
    except UserError as error:
        try:
            run_dir = find_run(head, runs) if head else None
        except UserError:
            run_dir = None
        if run_dir is None:
            raise error from None
    return RunPart(run_dir, stage_named(tail, run_dir, runs))


def stage_named(name: str, run_dir: Path, runs: Path) -> str:
    """``name``, when the run has a stage of that name.

    Raises:
        UserError: it has none.
    """
    stages = PipelineRecord.read(run_dir).stages
    if name not in stages:
        hint = nearest(name, stages) or f"Stages: {', '.join(stages)}."
        raise UserError(f"run {name_of(run_dir, runs)} has no stage '{name}'. {hint}")
    return name


def artifacts_of(run_dir: Path, store: Store, kind: str | None = None) -> Iterator[tuple[str, Artifact]]:
    """(stage name, artifact) of what a pipeline's run made or found, in its order."""
    for name, link in PipelineRecord.read(run_dir).stages.items():
        if link.status == "done" and (kind is None or link.kind == kind):
            artifact = store.find(link.kind, link.fingerprint)
            if artifact is not None:
                yield name, artifact
