"""Batches from token shards: for each optimizer step the micro-batches of one data-parallel rank."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from llmexp.data.batch import Batch
from llmexp.data.order import DataOrder, Permutation
from llmexp.data.packing import Packing, Piece, pack, whole_documents
from llmexp.data.shards import Shards, as_list

PADDED_TO = 32
"""Rows of one document are padded to the longest of their micro-batch, rounded up to this many tokens."""


class PackedDataset:
    """Rows of shards as arrays."""

    def __init__(self, shards: Shards, packing: Packing) -> None:
        self.shards = shards
        self.packing = packing

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.packing)

    def fill(self, arrays: dict[str, np.ndarray], at: int, row: int) -> None:
        """Write a row into row ``at`` of the arrays that `empty_arrays` made."""
        offset = 0
        for k, piece in enumerate(self.packing[row]):
            offset = self._fill_piece({name: a[at] for name, a in arrays.items()}, offset, piece, k)

    def _fill_piece(self, row: dict[str, np.ndarray], offset: int, piece: Piece, number: int) -> int:
        """Write one piece at ``offset`` of a row; returns the offset after it."""
        n = piece.end - piece.start
        # One token more, if the document has it: the last token of a piece predicts it.
        tokens = self.shards.tokens(piece.doc, piece.start, piece.end + 1)
        counted = self.shards.mask(piece.doc, piece.start, piece.end + 1)
        here = slice(offset, offset + n)
        with_target = slice(offset, offset + len(tokens) - 1)
        row["ids"][here] = tokens[:n]
        row["targets"][with_target] = tokens[1:]
        row["mask"][with_target] = counted[1:]
        row["positions"][here] = np.arange(n)
        row["doc_ids"][here] = number
        return offset + n


def empty_arrays(rows: int, seq_len: int) -> dict[str, np.ndarray]:
    """Arrays of padding for a batch, by the names of `Batch`."""
    shape = (rows, seq_len)
    return {
        "ids": np.zeros(shape, np.int64),
        "targets": np.zeros(shape, np.int64),
        "mask": np.zeros(shape, np.bool_),
        "positions": np.zeros(shape, np.int64),
        "doc_ids": np.full(shape, -1, np.int32),
    }


class CorpusSource:
    """The endless sequence of samples of a mixture of shards, cut into steps, ranks and micro-batches.

    Step ``i`` is the samples ``i * global_batch`` to ``(i + 1) * global_batch`` of the order; rank ``r``
    has the ``r``-th of ``world`` equal runs. So any number of ranks sees the same steps.
    """

    def __init__(
        self,
        *,
        shards: Shards | Sequence[Shards],
        seed: int,
        global_batch: int,
        seq_len: int,
        packing: str = "documents",
        mixture: Sequence[float] = (),
        workers: int = 1,
        micro_batch: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Open a sequence.

        Args:
            shards: One input or several.
            seed: Of the order.
            global_batch: Samples of an optimizer step, over all ranks.
            seq_len: Tokens of a sample.
            packing: See `pack`.
            mixture: A weight for each input, or none.
            workers: Threads that read ahead.
            micro_batch: Samples of a micro-batch; None: all of a rank at once.
            rank: This process's data-parallel index.
            world: Number of data-parallel ranks.

        Raises:
            ValueError: the global batch cannot be cut evenly, or the mixture does not fit the inputs.
            BadData: an input has no sample with a token that counts.
        """
        if global_batch % world:
            raise ValueError(f"trainer.global_batch={global_batch} cannot be divided among {world} ranks")
        self._sets = [PackedDataset(s, pack(s, seq_len, packing)) for s in as_list(shards)]
        self._order = DataOrder([len(s) for s in self._sets], list(mixture), seed=seed)
        self._seq_len, self._trim = seq_len, packing == "pad"
        self._global_batch, self._local = global_batch, global_batch // world
        self._micro_batch = min(micro_batch or self._local, self._local)
        self._rank = rank
        self._origin = (0, 0)  # a step, and the sample with which it begins
        self._next_step = 0
        self._ahead = 2 * workers
        self._pool = ThreadPoolExecutor(workers, "loader") if workers else None
        self._ready: dict[int, Future[list[Batch]]] = {}
        self.waited = 0.0
        """Seconds for which `step` had to wait for data."""

    @property
    def report(self) -> list[dict[str, Any]]:
        """What packing did, for each input: documents, rows, truncated and dropped documents."""
        return [vars(s.packing.report) for s in self._sets]

    def step(self, step: int) -> list[Batch]:
        """This rank's micro-batches of an optimizer step, counted from 0."""
        began = time.perf_counter()
        self._next_step = step + 1
        if self._pool is None:
            batches = self._read(step)
        else:
            wanted = range(step, step + 1 + self._ahead)
            self._ready = {k: future for k, future in self._ready.items() if k in wanted}
            for k in wanted:
                if k not in self._ready:
                    self._ready[k] = self._pool.submit(self._read, k)
            batches = self._ready.pop(step).result()
        self.waited += time.perf_counter() - began
        return batches

    def sample_ids(self, step: int) -> list[int]:
        """The samples of a step over all ranks."""
        first_step, first_sample = self._origin
        start = first_sample + (step - first_step) * self._global_batch
        return list(range(start, start + self._global_batch))

    def documents(self, sample_ids: Sequence[int]) -> list[str]:
        """Names of the documents in samples, as ``<input's path>: <id in the corpus>``."""
        names = []
        for sample in sample_ids:
            source, row = self._order[sample]
            dataset = self._sets[source]
            names += [f"{dataset.shards.path}: {dataset.shards.name(p.doc)}" for p in dataset.packing[row]]
        return list(dict.fromkeys(names))

    @property
    def figures(self) -> dict[str, float]:
        """None: shards say no more than their batches."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Where the sequence stands, as JSON data: the next step, and the samples before it."""
        step, sample = self._origin
        consumed = sample + (self._next_step - step) * self._global_batch
        return {"step": self._next_step, "samples": consumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state says, also with another global batch or another number of ranks."""
        self._origin = (state["step"], state["samples"])
        self._next_step = state["step"]
        self._ready.clear()

    def close(self) -> None:
        """Stop reading ahead."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _read(self, step: int) -> list[Batch]:
        mine = self.sample_ids(step)[self._rank * self._local : (self._rank + 1) * self._local]
        cuts = range(0, len(mine), self._micro_batch)
        return [self._batch(mine[k : k + self._micro_batch]) for k in cuts]

    def _batch(self, samples: list[int]) -> Batch:
        arrays = empty_arrays(len(samples), self._seq_len)
        for at, sample in enumerate(samples):
            source, row = self._order[sample]
            self._sets[source].fill(arrays, at, row)
        return as_batch(arrays, samples, trim=self._trim, name_documents=self.documents)


def as_batch(
    arrays: dict[str, np.ndarray], sample_ids: list[int], *, trim: bool, name_documents: Any
) -> Batch:
    """Arrays as a batch; ``trim`` drops columns that are padding in every row."""
    if trim:
        used = int((arrays["doc_ids"] >= 0).any(axis=0).sum())
        width = min(-(-used // PADDED_TO) * PADDED_TO, arrays["ids"].shape[1])
        arrays = {name: np.ascontiguousarray(a[:, :width]) for name, a in arrays.items()}
    tensors: dict[str, Any] = {name: torch.from_numpy(a) for name, a in arrays.items()}
    return Batch(**tensors, sample_ids=sample_ids, name_documents=name_documents)


def heldout_batches(
    shards: Shards,
    *,
    seq_len: int,
    batch_size: int,
    max_rows: int | None = None,
    rank: int = 0,
    world: int = 1,
) -> Iterator[Batch]:
    """Batches for evaluation: every document whole, each target exactly once over all ranks.

    Args:
        shards: The held-out split.
        seq_len: Tokens of a row; longer documents are cut.
        batch_size: Rows of a batch.
        max_rows: Rows over all ranks at most: always the same, spread over the split.
        rank: This process's data-parallel index.
        world: Number of data-parallel ranks; they may get unequal numbers of rows.

    Raises:
        BadData: the split holds no document with a target.
    """
    from llmexp.corpus.faults import BadData

    dataset = PackedDataset(shards, whole_documents(shards, seq_len))
    if not len(dataset):
        raise BadData(f"{shards.path} holds no document of two tokens or more")
    # A fixed order that is no order of length, so that the first rows are like all.
    spread = Permutation(len(dataset), 0)
    rows = [spread(k) for k in range(min(len(dataset), max_rows or len(dataset)))][rank::world]

    def names(some: Sequence[int]) -> list[str]:
        return [shards.name(piece.doc) for row in some for piece in dataset.packing[row]]

    for k in range(0, len(rows), batch_size):
        some = rows[k : k + batch_size]
        arrays = empty_arrays(len(some), seq_len)
        for at, row in enumerate(some):
            dataset.fill(arrays, at, row)
        yield as_batch(arrays, some, trim=True, name_documents=names)
