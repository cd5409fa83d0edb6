"""``fit``: train a model with an objective on a source of batches, from wherever the run is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmexp.model.decoder import Decoder
from llmexp.objective.base import Objective
from llmexp.parallel.blocks import prepared
from llmexp.parallel.config import ParallelSpec
from llmexp.parallel.mesh import Mesh, device_kind
from llmexp.track.progress import Progress
from llmexp.track.tracker import RunTracker, Tracker
from llmexp.train.bad_losses import BadSteps
from llmexp.train.boundary import Boundary
from llmexp.train.checkpoint import Checkpoints, read_checkpoint
from llmexp.train.config import OptimizerSpec, Recompute, SchedulerSpec, TrainerSpec
from llmexp.train.errors import BrokenCheckpoint, RanksDiffer
from llmexp.train.resume import FOLDER, begin
from llmexp.train.run import Compute, Run, Source, Validate
from llmexp.train.state import load_model_tensors, weights_hash

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    """What a run came to. Losses are nats a counted token."""

    steps: int
    """Global batches seen, over all restarts."""
    skipped: int
    """Of these, the ones that did not step the optimizer."""
    tokens: int
    counted_tokens: int
    seconds: float
    """In the loop, over all restarts, held-out figures and checkpoints included."""
    final_loss: float | None
    """Training loss of the last step that was not skipped."""
    best_val: float | None
    """Lowest held-out loss; where rewards are learned from, the highest held-out reward, negated."""
    best_step: int | None
    """The step it was met at; with ``stop_when`` the model has these weights."""
    stopped_early: bool
    weights_hash: str
    checkpoint: Path | None
    """The last one that was written or read."""


def fit(
    *,
    model: Decoder,
    objective: Objective,
    source: Source,
    trainer: TrainerSpec,
    optimizer: OptimizerSpec,
    scheduler: SchedulerSpec,
    parallel: ParallelSpec,
    seed: int,
    seq_len: int,
    run_dir: Path,
    tracker: Tracker,
    progress: Progress,
    should_stop: Callable[[], bool] = lambda: False,
    guard: Callable[[], None] = lambda: None,
    validate: Validate | None = None,
    compute: Compute | None = None,
    description: str = "train",
) -> FitResult:
    """Train ``model`` in place until the trainer's budget is used up, and return what it came to.

    Every rank calls this with the same arguments; ``tracker`` and ``progress`` are used on rank 0.
    ``should_stop`` is asked once a step, and every rank heeds any rank's yes. ``guard`` raises
    when this process no longer owns ``run_dir``. ``validate`` is called with the model in
    evaluation mode. ``compute`` makes ``perf/mfu`` known. ``seed`` is that of dropout. ``seq_len``: tokens
    of a full sequence, in which ``trainer.max_tokens`` is counted.

    Raises:
        Interrupted: ``should_stop`` said yes; the checkpoint to go on from has been written.
        BadLoss: see ``trainer.on_bad_loss``.
        NoCountedTokens: nothing in the data counts.
        ResumeMistake: ``trainer.resume`` cannot be gone on from.
        RanksDiffer: the ranks were given different weights.
        MeshMistake: the mesh and the processes started do not fit together.
    """
    mesh: Mesh = parallel.build(device=device_kind(trainer.device.value))
    model.to(mesh.device)
    _check_equal(model, mesh)
    folder = run_dir / FOLDER
    checkpoints = Checkpoints(folder, keep=trainer.keep_checkpoints, guard=guard)
    if mesh.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoints.clean()
    mesh.wait()
    run = Run(
        model=model,
        objective=objective,
        source=source,
        optimizer=optimizer.build(parameters=dict(model.named_parameters())),
        schedule=scheduler.build(),
        trainer=trainer,
        optimizer_spec=optimizer,
        scheduler_spec=scheduler,
        mesh=mesh,
        seed=seed,
        total=trainer.steps(seq_len),
        checkpoints=checkpoints,
        bad_steps=BadSteps(run_dir / "bad_losses.json"),
        tracker=tracker if mesh.is_first else Tracker(),
        progress=progress if mesh.is_first else Progress(quiet=True),
        should_stop=should_stop,
        validate=validate,
        compute=compute,
        run_id=tracker.run.id if isinstance(tracker, RunTracker) else "",
    )
    begin(run, trainer.resume)
    if not run.done:
        _loop(run, run_dir, description)
    return _result(run)


def _loop(run: Run, run_dir: Path, description: str) -> None:
    from llmexp.train.lightning import drive, make_trainer, quiet
    from llmexp.train.loop import TrainingLoop

    trainer = run.trainer
    total, unit = (run.total, "steps") if run.total is not None else (trainer.max_seconds, "s")
    recompute = trainer.activation_checkpointing is Recompute.block
    run.model.train()
    with (
        quiet(),
        prepared(run.model, recompute=recompute, compile_blocks=trainer.compile),
        run.progress.task(description, total=total, unit=unit) as task,
    ):
        boundary = Boundary(run, task)
        loop = TrainingLoop(run, boundary)
        try:
            drive(make_trainer(run.mesh, run_dir), loop, loop.steps)
            boundary.conclude()
        finally:
            loop.close()
            if run.position.empty:
                count = f"{run.position.empty} of {run.position.step} steps"
                run.progress.line(f"  {description}: {count} taught nothing")


def _result(run: Run) -> FitResult:
    """Take the best weights where they were asked for, and sum up."""
    position = run.position
    if run.trainer.stop_when is not None and position.best_step is not None:
        path = run.checkpoints.path("best", position.best_step)
        try:
            best = read_checkpoint(path).tensors("model")
        except BrokenCheckpoint as error:
            log.warning("%s; it holds the best weights, and the last ones stay", error)
        else:
            load_model_tensors(run.model, best, str(path))
    return FitResult(
        steps=position.step,
        skipped=len(position.skipped),
        tokens=position.tokens,
        counted_tokens=position.counted,
        seconds=position.seconds,
        final_loss=position.last_loss,
        best_val=position.best_val,
        best_step=position.best_step,
        stopped_early=position.stopped,
        weights_hash=weights_hash(run.model),
        checkpoint=run.last_checkpoint,
    )


def _check_equal(model: Decoder, mesh: Mesh) -> None:
    if mesh.size > 1 and len(set(mesh.from_each(weights_hash(model)))) > 1:
        raise RanksDiffer(
            "the ranks were given different initial weights: build the model from the same seed on each"
        )
