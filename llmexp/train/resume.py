"""Choosing where a run begins: from nothing, from its own newest checkpoint, or from a given one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from llmexp.config.spec import settings
from llmexp.train.checkpoint import MANIFEST, Checkpoint, Checkpoints, read_checkpoint
from llmexp.train.config import SchedulerSpec
from llmexp.train.errors import ResumeMistake
from llmexp.train.run import Run

log = logging.getLogger(__name__)

FOLDER = "checkpoints"
"""Under a run's folder."""

COMPARED = 4096
"""Past steps at most whose learning rates are compared."""


def begin(run: Run, resume: str) -> None:
    """Bring ``run`` to where it begins; ``resume`` is ``trainer.resume``.

    Its own checkpoints come before a given path, since a restarted command has the same settings
    as the first start. Rank 0 chooses, all ranks read the same files.

    Raises:
        ResumeMistake: the path is missing, or the checkpoint is of other settings.
        BrokenCheckpoint: the checkpoint at the path is not whole.
    """
    chosen: str | None = None
    if resume != "never" and run.mesh.is_first:
        found = run.checkpoints.newest() or (find_checkpoint(Path(resume)) if resume != "auto" else None)
        chosen = str(found.path) if found else None
    chosen = run.mesh.from_first(chosen)
    if chosen is None:
        if resume == "never":
            run.bad_steps.forget()
        if run.mesh.is_first:
            run.checkpoints.go_back(0)
        log.info("no checkpoint, starting at step 0")
        run.tracker.event("begin", step=0)
        return
    checkpoint = read_checkpoint(Path(chosen))
    check_settings(checkpoint, run)
    run.restore(checkpoint)
    if checkpoint.path.parent != run.checkpoints.folder:
        run.position.forget_best()  # its weights lie with the other run
    run.progress.line(f"  going on from step {checkpoint.step}, as {checkpoint.path} has it")
    run.tracker.event(
        "resume", step=checkpoint.step, path=str(checkpoint.path), run_id=checkpoint.state["run_id"]
    )


def find_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at ``path``, or the newest valid one of the run whose folder ``path`` is.

    Raises:
        ResumeMistake: there is nothing there, or no valid checkpoint.
        BrokenCheckpoint: ``path`` is a checkpoint and is not whole.
    """
    if not path.exists():
        raise ResumeMistake(
            f"trainer.resume: there is no {path}: give a checkpoint, a run folder, auto or never"
        )
    for folder in (path / FOLDER, path):
        if any(folder.glob("step-*")):
            newest = Checkpoints(folder, keep=1).newest()
            if newest is None:
                raise ResumeMistake(f"trainer.resume: no checkpoint in {folder} is whole")
            return newest
    if not (path / MANIFEST).exists() and not path.name.startswith(("step-", "best-")):
        raise ResumeMistake(
            f"trainer.resume: {path} is neither a checkpoint nor the folder of a run that has one"
        )
    return read_checkpoint(path)


def check_settings(checkpoint: Checkpoint, run: Run) -> None:
    """A run may go on from a checkpoint that was made with the same kind of optimizer, batch and schedule.

    Its peak rate, weight decay or seed may be others: those are the reasons to go on elsewhere.

    Raises:
        ResumeMistake: the optimizer is of another kind, the global batch has another size, or
            the learning rates up to here would have been other shares of their peak.
    """
    made, own = checkpoint.state.get("made_with"), run.made_with()
    if made is None:
        raise ResumeMistake(
            f"{checkpoint.path} holds weights alone: start from it with model.init_from instead"
        )
    differ = []
    if made["optimizer"]["_target_"] != own["optimizer"]["_target_"]:
        differ.append(
            f"optimizer is {made['optimizer']['_target_']} there and {own['optimizer']['_target_']} here"
        )
    if made["global_batch"] != own["global_batch"]:
        differ.append(f"trainer.global_batch is {made['global_batch']} there and {own['global_batch']} here")
    updates = checkpoint.step - len(checkpoint.state["position"]["skipped"])
    other = first_other_rate(made, run, updates)
    if other is not None:
        differ.append(
            f"at step {other + 1} the learning rate was not what this scheduler and number of steps make it "
            "(a longer run can go on from a constant schedule, or from the stable phase of wsd)"
        )
    if differ:
        raise ResumeMistake(f"cannot go on from {checkpoint.path}: {'; '.join(differ)}")


def first_other_rate(made: dict[str, Any], run: Run, updates: int) -> int | None:
    """The first past update whose learning rate, as a share of its peak, differs between the two runs.

    None as well when seconds end either run: what its rates were is not written down.
    """
    if made["total_steps"] is None or run.total is None:
        return None
    spec = _scheduler(made["scheduler"])
    if spec is None:
        raise ResumeMistake(f"the checkpoint's schedule {made['scheduler']['_target_']} is not known here")
    then = spec.build()
    stride = max(1, updates // COMPARED)
    for step in range(0, updates, stride):
        if then(step, made["total_steps"]) != run.schedule(step, run.total):
            return step
    return None


def _scheduler(data: dict[str, Any]) -> SchedulerSpec | None:
    kinds = [SchedulerSpec]
    while kinds:
        kind = kinds.pop()
        if kind._target_ == data["_target_"]:  # type: ignore[attr-defined]
            return kind(**{f.name: data[f.name] for f in settings(kind)})
        kinds += kind.__subclasses__()
    return None
