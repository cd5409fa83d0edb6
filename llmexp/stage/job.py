"""One stage's execution as plain data, and the function that carries it out in any process."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmexp.config.spec import as_data, target
from llmexp.stage.config import RootSpec, StageSpec
from llmexp.stage.context import Context, External, Input
from llmexp.store.store import Store
from llmexp.track import tracker as tracking
from llmexp.track.masking import hidden, mask_of
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker


@dataclass(kw_only=True)
class StageJob:
    """What a process needs to know to run one stage."""

    name: str
    kind: str
    """Stage type."""
    spec: StageSpec
    root: RootSpec
    inputs: dict[str, Input | dict[str, Input]]
    output: External
    """Kind, fingerprint and final folder of the artifact to come."""
    out: Path
    """Folder to fill."""
    run_dir: Path
    pipeline_dir: Path
    secrets: frozenset[str] = field(default_factory=frozenset)
    secret_paths: frozenset[str] = field(default_factory=frozenset)
    """Places in ``spec`` that hold secrets."""


def run_job(
    job: StageJob,
    *,
    progress: Progress,
    should_stop: Callable[[], bool],
    guard: Callable[[], None],
    parent: Tracker | Path,
    rank: int = 0,
    world: int = 1,
) -> dict[str, Any]:
    """Run the stage of a job and return its summary; what it raises is recorded and raised again."""
    tracker = tracking.start(
        job.root.tracking,
        run_dir=job.run_dir,
        name=job.name,
        stage=job.kind,
        outputs=Path(job.root.paths.outputs),
        parent=parent,
        mask=job.secrets,
        rank=rank,
    )
    context = Context(
        name=job.name,
        out=job.out,
        run_dir=job.run_dir,
        inputs=job.inputs,
        tracker=tracker,
        progress=progress,
        should_stop=should_stop,
        guard=guard,
        hardware=job.root.hardware,
        store=Store(job.root.paths.roots),
        rank=rank,
        world=world,
    )
    with tracker:
        try:
            tracker.params(hidden(as_data(job.spec), job.secret_paths))
            flat: Any = {k: list(v.values()) if isinstance(v, dict) else v for k, v in job.inputs.items()}
            tracker.lineage(flat, job.output)
            summary: dict[str, Any] = target(job.spec.runs)(job.spec, context)
        except BaseException as error:
            tracker.event("error", error=type(error).__name__, message=str(error))
            if isinstance(error, Exception):
                trace = "".join(traceback.format_exception(error))
                (job.run_dir / "error.txt").write_text(mask_of(job.secrets)(trace))
            raise
    return summary
