"""Batch: the one thing that a model, an objective and a data source have in common.

Shapes: batch = rows of this micro-batch, seq = positions of a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor


@dataclasses.dataclass
class Batch:
    """One micro-batch of packed or padded rows.

    A position of padding has document -1, id 0 and a false mask; nothing is ever read off an id's value.
    """

    ids: Tensor
    """(batch, seq) int64 token ids."""
    targets: Tensor
    """(batch, seq) int64: ``targets[b, t]`` is the id that follows ``ids[b, t]`` in its document."""
    mask: Tensor
    """(batch, seq) bool: the target of this position counts in the loss."""
    positions: Tensor
    """(batch, seq) int64: place within the document's piece, from 0."""
    doc_ids: Tensor
    """(batch, seq) int32: attention stays within equal ids; -1 is padding."""
    extras: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """Further tensors whose first dimension is batch, by name."""
    sample_ids: list[int] = dataclasses.field(default_factory=list)
    """Index of each row in the run's data order."""
    name_documents: Callable[[list[int]], list[str]] | None = None
    """Names the documents of samples; asked in error reports alone."""

    def __len__(self) -> int:
        """Number of rows."""
        return self.ids.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        """The same batch on ``device``."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        return dataclasses.replace(
            self,
            ids=moved(self.ids),
            targets=moved(self.targets),
            mask=moved(self.mask),
            positions=moved(self.positions),
            doc_ids=moved(self.doc_ids),
            extras={name: moved(tensor) for name, tensor in self.extras.items()},
        )

    def documents(self) -> list[str]:
        """Names of the documents in this batch, for error reports; empty where the source has none."""
        return self.name_documents(self.sample_ids) if self.name_documents else []
