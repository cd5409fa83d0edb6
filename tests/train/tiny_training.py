"""A training run of seconds on real parts, for tests. Also a program: see ``kill_and_resume``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from llmexp.data.batch import Batch
from llmexp.model.config import ModelSpec
from llmexp.model.decoder import Decoder
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.config import ParallelSpec
from llmexp.track.journal import Journal
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker
from llmexp.train.config import AdamWSpec, ConstantSpec, Device, TrainerSpec
from llmexp.train.fit import FitResult, fit

VOCAB, SEQ = 32, 12


def cut(batch: Batch, n: int) -> list[Batch]:
    """``n`` micro-batches of consecutive rows, as even as they come."""
    edges = [len(batch) * k // n for k in range(n + 1)]
    return [rows(batch, slice(a, b)) for a, b in itertools.pairwise(edges)]


def rows(batch: Batch, kept: slice) -> Batch:
    """Some rows of a batch."""
    tensors = {
        name: getattr(batch, name)[kept] for name in ("ids", "targets", "mask", "positions", "doc_ids")
    }
    extras = {name: tensor[kept] for name, tensor in batch.extras.items()}
    return dataclasses.replace(batch, **tensors, extras=extras, sample_ids=batch.sample_ids[kept])


class Sequences:
    """A pure function of the step: ``rows`` sequences, each with another number of counted tokens.

    Tokens follow a rule (each is the last plus the row's stride), so that there is something to learn.
    """

    def __init__(self, rows: int = 4, cuts: int = 2, rank: int = 0, ranks: int = 1) -> None:
        self.rows, self.cuts, self.rank, self.ranks = rows, cuts, rank, ranks
        self.asked: list[int] = []
        self.empty_steps: set[int] = set()

    def batch(self, step: int) -> Batch:
        """The whole global batch of ``step``."""
        g = torch.Generator().manual_seed(step)
        start = torch.randint(0, VOCAB, (self.rows, 1), generator=g)
        stride = torch.randint(1, 4, (self.rows, 1), generator=g)
        ids = (start + stride * torch.arange(SEQ + 1)) % VOCAB
        length = torch.randint(2, SEQ + 1, (self.rows, 1), generator=g)
        mask = torch.arange(SEQ) < length
        return Batch(
            ids=ids[:, :-1],
            targets=ids[:, 1:],
            mask=mask & (step not in self.empty_steps),
            positions=torch.arange(SEQ).expand(self.rows, SEQ),
            doc_ids=torch.zeros(self.rows, SEQ, dtype=torch.int32),
            sample_ids=[step * self.rows + i for i in range(self.rows)],
            name_documents=lambda samples: [f"document-{i}" for i in samples],
        )

    def step(self, step: int) -> list[Batch]:
        """See ``llmexp.train.run.Source``."""
        self.asked.append(step)
        return cut(cut(self.batch(step), self.ranks)[self.rank], self.cuts)

    figures: ClassVar[dict[str, float]] = {}

    def state_dict(self) -> dict[str, Any]:
        """A corpus has none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A corpus has none."""
        assert state == {}


class Recorder(Tracker):
    """Keeps what is logged in memory, the first value of each (key, step)."""

    def __init__(self) -> None:
        self.values: dict[str, dict[int, float]] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log values of a step."""
        for key, value in values.items():
            self.values.setdefault(key, {}).setdefault(step, value)

    def event(self, kind: str, **fields: Any) -> None:
        """Log something that happened."""
        self.events.append((kind, fields))

    def kinds(self) -> list[str]:
        """The kinds of the events so far."""
        return [kind for kind, _ in self.events]


class InJournal(Tracker):
    """Writes a real journal, without a run around it."""

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log values of a step."""
        self.journal.metrics(values, step)

    def rollback(self, step: int) -> None:
        """Training goes back to ``step``."""
        self.journal.roll_back(step)

    def flush(self) -> None:
        """Force what was logged to the disk."""
        self.journal.sync()


def model(seed: int = 0, **changes: Any) -> Decoder:
    """Two blocks, 16 wide."""
    size = {
        "d_model": 16,
        "n_layers": 2,
        "n_heads": 2,
        "ffn_dim": 32,
        "vocab_size": VOCAB,
        "max_seq_len": SEQ,
    }
    return ModelSpec(**(size | changes)).build(seed=seed)


def trainer(**changes: Any) -> TrainerSpec:
    """Twelve steps of four sequences on the CPU, a checkpoint every fourth."""
    return TrainerSpec(
        **({"max_steps": 12, "global_batch": 4, "checkpoint_every": 4, "device": Device.cpu} | changes)
    )


def train(run_dir: Path, **changes: Any) -> FitResult:
    """``fit`` with small parts; ``changes`` replace its arguments."""
    arguments: dict[str, Any] = {
        "objective": CrossEntropy(),
        "trainer": trainer(),
        "optimizer": AdamWSpec(lr=1e-2),
        "scheduler": ConstantSpec(warmup_steps=2),
        "parallel": ParallelSpec(),
        "seed": 0,
        "seq_len": SEQ,
        "run_dir": run_dir,
        "progress": Progress(quiet=True),
    }
    arguments |= changes
    arguments.setdefault("model", model())
    arguments.setdefault("source", Sequences())
    arguments.setdefault("tracker", Recorder())
    return fit(**arguments)
