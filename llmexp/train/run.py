"""A training run in progress: its parts, its position, and how both are saved and taken back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch.optim import Optimizer

from llmexp.config.spec import as_data
from llmexp.data.batch import Batch
from llmexp.model.decoder import Decoder
from llmexp.nn.precision import autocast
from llmexp.objective.base import Objective
from llmexp.parallel.mesh import Mesh
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker
from llmexp.train.bad_losses import BadSteps
from llmexp.train.checkpoint import Checkpoint, Checkpoints
from llmexp.train.config import OptimizerSpec, Precision, SchedulerSpec, TrainerSpec
from llmexp.train.position import Position
from llmexp.train.schedules import Schedule
from llmexp.train.state import load_model_tensors, load_optimizer_tensors, model_tensors, optimizer_tensors

log = logging.getLogger(__name__)

Validate = Callable[[Decoder], dict[str, float]]
"""Held-out figures of the model by journal key; called on every rank.

Among them is ``val/loss``, or ``val/reward`` where rewards are learned from: the best model has the
lowest loss or the highest reward.
"""


class Source(Protocol):
    """Where batches come from."""

    @property
    def figures(self) -> Mapping[str, float]:
        """What the source says of the step that it gave last, over all ranks, by metric; may be empty."""

    def step(self, step: int) -> Sequence[Batch]:
        """This rank's micro-batches of optimizer step ``step``, counted from 0."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold besides the step, as JSON data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what ``state_dict`` gave."""


@dataclass(frozen=True)
class Compute:
    """What model FLOPs utilisation is reckoned from."""

    flops_per_token: float
    """Of a forward and a backward pass."""
    peak_flops: float
    """FLOP/s of all devices of the run together."""


@dataclass
class Run:
    """Everything that the loop works with."""

    model: Decoder
    objective: Objective
    source: Source
    optimizer: Optimizer
    schedule: Schedule
    trainer: TrainerSpec
    optimizer_spec: OptimizerSpec
    scheduler_spec: SchedulerSpec
    mesh: Mesh
    seed: int
    total: int | None
    """Steps of the whole run; None when seconds end it."""
    checkpoints: Checkpoints
    bad_steps: BadSteps
    tracker: Tracker
    progress: Progress
    should_stop: Callable[[], bool]
    validate: Validate | None
    compute: Compute | None
    run_id: str
    position: Position = field(default_factory=Position)
    last_checkpoint: Path | None = None

    @property
    def done(self) -> bool:
        """Whether the budget is used up, or ``stop_when`` has ended the run."""
        if self.position.stopped:
            return True
        if self.total is not None:
            return self.position.step >= self.total
        return self.position.seconds >= (self.trainer.max_seconds or 0.0)

    def computing(self) -> AbstractContextManager[Any]:
        """The precision of passes outside the loss: what samples or measures the model is what is trained."""
        return autocast(self.mesh.device, bf16=self.trainer.precision is Precision.bf16)

    def rate(self) -> float:
        """The next step's part of the peak learning rate.

        When seconds end the run, the steps it will have had are reckoned from those so far.
        """
        updates, total = self.position.updates, self.total
        if total is None:
            used = self.position.seconds / (self.trainer.max_seconds or 1.0)
            total = round(updates / used) if used > 0 else updates + self.scheduler_spec.warmup_steps + 1
        return self.schedule(updates, max(total, updates + 1))

    def save(self) -> Path | None:
        """Write a checkpoint of the present position; None, on every rank, when that failed.

        A disk that is full is no reason to lose the run: the last good checkpoint stays, and
        people are told. What was logged is on the disk before the checkpoint that follows it.
        """
        written = self._write() if self.mesh.is_first else None
        path = self.mesh.from_first(str(written) if written else None)
        if path is None:
            return None
        self.last_checkpoint = Path(path)
        return self.last_checkpoint

    def _write(self) -> Path | None:
        tensors, numbers = optimizer_tensors(self.model, self.optimizer)
        self.tracker.flush()
        state = {
            "position": self.position.as_data(),
            "optimizer_numbers": numbers,
            "objective": self.objective.state_dict(),
            "source": self.source.state_dict(),
            "run_id": self.run_id,
            "made_with": self.made_with(),
        }
        groups = {"model": model_tensors(self.model), "optimizer": tensors}
        try:
            path = self.checkpoints.save(self.position.step, groups, state)
        except OSError as error:
            self._tell_not_saved(error)
            return None
        self.tracker.event("checkpoint", step=self.position.step, path=str(path))
        return path

    def save_best(self, figures: dict[str, float]) -> bool:
        """Keep the present weights as the best; whether that could be written, on every rank."""
        saved = True
        if self.mesh.is_first:
            try:
                self.checkpoints.save(
                    self.position.step,
                    {"model": model_tensors(self.model)},
                    {"figures": figures},
                    kind="best",
                )
            except OSError as error:
                self._tell_not_saved(error)
                saved = False
        return bool(self.mesh.from_first(saved))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go to the position of ``checkpoint``, with its weights and its optimizer state."""
        where, state = str(checkpoint.path), checkpoint.state
        load_model_tensors(self.model, checkpoint.tensors("model"), where)
        load_optimizer_tensors(
            self.model, self.optimizer, checkpoint.tensors("optimizer"), state["optimizer_numbers"], where
        )
        self.objective.load_state_dict(state["objective"])
        self.source.load_state_dict(state["source"])
        self.position = Position.from_data(state["position"])
        self.last_checkpoint = checkpoint.path
        if self.mesh.is_first:
            self.checkpoints.go_back(self.position.step)

    def made_with(self) -> dict[str, Any]:
        """What a run must share with a checkpoint to go on from it."""
        return {
            "optimizer": as_data(self.optimizer_spec),
            "scheduler": as_data(self.scheduler_spec),
            "global_batch": self.trainer.global_batch,
            "total_steps": self.total,
        }

    def _tell_not_saved(self, error: OSError) -> None:
        kept = (
            f"the last good one is {self.last_checkpoint}"
            if self.last_checkpoint
            else "there is none before it"
        )
        log.warning("step %d: no checkpoint could be written (%s); %s", self.position.step, error, kept)
        self.tracker.event("checkpoint_failed", step=self.position.step, reason=str(error))
