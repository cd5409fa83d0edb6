"""What the training loop asks of an objective. Shapes: batch, seq as in the batch given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from llmexp.model.decoder import Decoder


class TokenBatch(Protocol):
    """What every batch has; an objective may ask for more in ``extras``."""

    @property
    def ids(self) -> Tensor:
        """(batch, seq) int64."""

    @property
    def targets(self) -> Tensor:
        """(batch, seq) int64: the token after each of ``ids``."""

    @property
    def mask(self) -> Tensor:
        """(batch, seq) bool: which targets count."""

    @property
    def positions(self) -> Tensor | None:
        """(batch, seq) int64, restarting in each document; None: one document a row."""

    @property
    def doc_ids(self) -> Tensor | None:
        """(batch, seq) int32: attention stays within equal ids; None: one document a row."""

    @property
    def extras(self) -> dict[str, Tensor]:
        """What else an objective needs, by name; the first dimension is batch."""


@dataclass(frozen=True)
class Loss:
    """Sums over the tokens that count in one micro-batch; the loop divides by the global count."""

    total: Tensor
    """Scalar, with gradient."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Scalars without gradient, by their journal key; also sums over the tokens that count."""


class Objective(ABC):
    """(model, batch) -> loss. One instance a run; it may keep state, which checkpoints then hold."""

    non_negative: ClassVar[bool] = True
    """Whether a loss is never below 0, so that one a few times the usual size is a bad sign."""

    nothing_counts: ClassVar[str] = (
        "is every prompt longer than loader.seq_len, or does the chat template mark no assistant turn?"
    )
    """What to look at when no token of the data counts."""
    why_empty: ClassVar[str] = "none of its tokens counts"
    """Why there is nothing to learn from a step in which no token counts."""

    def count(self, batch: TokenBatch) -> Tensor:
        """The number of tokens that count in ``batch``, a scalar int64; asked before anything is computed."""
        return torch.count_nonzero(batch.mask)

    @abstractmethod
    def __call__(self, model: Decoder, batch: TokenBatch) -> Loss:
        """The micro-batch's loss, summed over the tokens that count."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold besides the model, as JSON data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave.

        Raises:
            ValueError: ``state`` is of another objective.
        """
        if state:
            raise ValueError(
                f"{type(self).__name__} keeps no state, but the checkpoint holds {sorted(state)}"
            )
