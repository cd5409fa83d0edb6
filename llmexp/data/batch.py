"""Batch: the one thing that a model, an objective and a data source have in common.

Shapes: batch = rows of this micro-batch, seq = positions of a row.
"""

from __future__ import annotations

import dataclasses
import itertools
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
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking), self.sample_ids)

    def split(self, n: int) -> list[Batch]:
        """``n`` micro-batches of consecutive rows, as even as they come, together this batch.

        Raises:
            ValueError: there are fewer rows than ``n``.
        """
        rows = len(self)
        if not 1 <= n <= rows:
            raise ValueError(f"cannot split {rows} rows into {n} micro-batches")
        edges = [rows * k // n for k in range(n + 1)]
        return [self._rows(a, b) for a, b in itertools.pairwise(edges)]

    def documents(self) -> list[str]:
        """Names of the documents in this batch, for error reports; empty where the source has none."""
        return self.name_documents(self.sample_ids) if self.name_documents else []

    def _rows(self, start: int, end: int) -> Batch:
        return self._map(lambda tensor: tensor[start:end], self.sample_ids[start:end])

    def _map(self, change: Callable[[Tensor], Tensor], sample_ids: list[int]) -> Batch:
        return dataclasses.replace(
            self,
            ids=change(self.ids),
            targets=change(self.targets),
            mask=change(self.mask),
            positions=change(self.positions),
            doc_ids=change(self.doc_ids),
            extras={name: change(tensor) for name, tensor in self.extras.items()},
            sample_ids=sample_ids,
        )
