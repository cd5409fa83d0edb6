"""What can end a training run, told to a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class TrainingError(Exception):
    """Base of all errors of training."""

    exit_code = 1
    """What the command ends with: 1 failed while running, 2 a person's mistake."""


class BadLoss(TrainingError):
    """A loss that is not finite or far above the usual, and the policy says to end.

    Attributes:
        step: the optimizer step whose loss it is, counted from 1 as in the journal.
        documents: what the step's batches hold.
        checkpoint: the last good checkpoint, if there is one.
        repeated: the same step was bad before, so running it once more is no use.
    """

    def __init__(
        self, reason: str, *, step: int, documents: Sequence[str], checkpoint: Path | None, repeated: bool
    ) -> None:
        self.step, self.documents, self.checkpoint, self.repeated = (
            step,
            list(documents),
            checkpoint,
            repeated,
        )
        shown = ", ".join(self.documents[:8]) + (
            f" and {len(documents) - 8} more" if len(documents) > 8 else ""
        )
        lines = [
            f"step {step}: {reason}; the optimizer was not stepped",
            f"the step's batch: {shown or 'its source names no documents'}",
            f"last good checkpoint: {checkpoint or 'none yet'}",
        ]
        if repeated:
            lines.append("the same step was bad before: it is the data or the settings, not chance")
        lines.append(
            "look at those documents, lower optimizer.lr or trainer.grad_clip, "
            "or set trainer.on_bad_loss=skip or rollback"
        )
        super().__init__("\n".join(lines))


class NoCountedTokens(TrainingError):
    """Nothing in the data would be learned: no token of it counts."""

    exit_code = 2


class ResumeMistake(TrainingError):
    """``trainer.resume`` names something that training cannot go on from."""

    exit_code = 2


class BrokenCheckpoint(ResumeMistake):
    """A checkpoint is not whole.

    Attributes:
        file: the file that is missing, cut off or changed.
    """

    def __init__(self, file: Path, problem: str) -> None:
        self.file, self.problem = file, problem
        super().__init__(f"checkpoint {file.parent} is broken: {file} {problem}")


class RanksDiffer(TrainingError):
    """The ranks of a run did not start from the same weights."""
