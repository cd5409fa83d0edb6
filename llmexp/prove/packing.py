"""A document in a packed row is computed as if it were alone. Shapes: batch, seq, V = vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from llmexp.config.mistakes import UserError
from llmexp.data.batch import Batch
from llmexp.data.config import LoaderSpec
from llmexp.data.shards import Shards
from llmexp.model.decoder import Decoder
from llmexp.model.io import load
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.mesh import device_kind
from llmexp.prove.cut import Ready
from llmexp.prove.result import Comparison, Proof, compare_tensors
from llmexp.stage.config import Pretrain
from llmexp.tokenizer.tokenizer import Tokenizer
from llmexp.track.progress import Progress

LOGIT_TOLERANCE = 1e-9
"""In float64, for logits up to 1, else times the largest. Attention across documents shows far above it."""
LOSS_TOLERANCE = 1e-5
"""A part of the loss, which is summed in float32."""
ROWS = 8
SEARCHED = 64
"""Batches that are looked through for rows of several documents."""
AT_ONCE = 256
"""Tokens whose logits are held at a time."""


def prove_packing(ready: Ready, progress: Progress) -> Proof:
    """Compare rows as the stage's loader packs them with each of their documents alone.

    In float64 and without dropout, so that what differs is not rounding.

    Raises:
        UserError: the stage packs nothing, or no row holds two documents.
    """
    loader = getattr(ready.spec, "loader", None)
    if not isinstance(loader, LoaderSpec):
        raise UserError(f"stage '{ready.job.name}' learns from completions, one a row: it packs nothing")
    rows = list(_rows(ready, loader))
    if not rows:
        raise UserError(
            f"no row of loader.seq_len={loader.seq_len} with loader.packing={loader.packing} holds "
            "two documents: there is nothing to compare"
        )
    kind = device_kind(ready.spec.trainer.device.value)
    # No float64 on Apple's GPUs.
    model = _model(ready).to("cpu" if kind == "mps" else kind, torch.float64).eval()
    with progress.task("comparing packed rows with documents alone", len(rows), "rows") as task:
        comparisons = compare_packed(model, rows, done=task.advance)
    documents = sum(len(pieces(row)) for row in rows)
    note = f"{len(rows)} rows of {loader.seq_len} tokens with {documents} documents, float64, dropout off"
    rounding = "allowed is rounding: of logits in float64, and of a loss that is summed in float32"
    return Proof("packing", ready.job.name, comparisons, [note, rounding])


def _rows(ready: Ready, loader: LoaderSpec) -> Iterator[Batch]:
    """The first rows of the stage's data order that hold several documents."""
    source = loader.build(
        shards=Shards(_path(ready, "shards"), "train"),
        seed=ready.spec.seed,
        global_batch=ready.spec.trainer.global_batch,
        micro_batch=1,
    )
    left = ROWS
    try:
        for step in range(SEARCHED):
            for row in source.step(step):
                if left and len(pieces(row)) > 1:
                    left -= 1
                    yield row
            if not left:
                return
    finally:
        source.close()


def _path(ready: Ready, need: str) -> Path:
    found = ready.job.inputs[need]
    assert not isinstance(found, dict)
    return found.path


def _model(ready: Ready) -> Decoder:
    """The model with which the stage begins."""
    spec = ready.spec
    if isinstance(spec, Pretrain):
        size = Tokenizer.load(_path(ready, "tokenizer")).vocab_size
        model: Decoder = spec.model.build(seed=spec.seed, tokenizer_vocab_size=size)
        return model
    return load(_path(ready, "model"))[0]


def pieces(row: Batch) -> list[tuple[int, int]]:
    """Begin and end of each document of a batch of one row; padding is none."""
    ids = row.doc_ids[0].tolist()
    starts = [k for k in range(len(ids)) if ids[k] >= 0 and (k == 0 or ids[k] != ids[k - 1])]
    ends = [next((j for j in range(k, len(ids)) if ids[j] != ids[k]), len(ids)) for k in starts]
    return list(zip(starts, ends, strict=True))


@torch.no_grad()
def compare_packed(
    model: Decoder, rows: Iterable[Batch], done: Callable[[], None] | None = None
) -> list[Comparison]:
    """Logits and losses of batches of one row, packed against each document alone.

    ``model`` is in float64 and evaluation mode. ``done`` is called after each row.
    """
    logits = Comparison("logits of every token", LOGIT_TOLERANCE)
    losses = Comparison("loss of every row", LOSS_TOLERANCE)
    objective = CrossEntropy()
    device = model.head_weight.device
    for number, row in enumerate(rows):
        batch = row.to(device)
        packed = model.hidden(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)[0]
        alone_loss = 0.0
        for begin, end in pieces(row):
            where = f"row {number}, document of tokens {begin} to {end - 1}"
            alone = model.hidden(batch.ids[:, begin:end])[0]
            _compare_logits(model, alone, packed[begin:end], where, logits)
            alone_loss += float(objective(model, _alone(batch, begin, end)).total)
        packed_loss = float(objective(model, batch).total)
        losses.tolerance = LOSS_TOLERANCE * max(1.0, abs(alone_loss))
        losses.add(f"row {number}", alone_loss, packed_loss)
        if done is not None:
            done()
    return [logits, losses]


def _compare_logits(model: Decoder, alone: Tensor, packed: Tensor, where: str, into: Comparison) -> None:
    """``alone`` and ``packed`` are hidden states (tokens, d_model) of one document."""
    for start in range(0, len(alone), AT_ONCE):
        expected = F.linear(alone[start : start + AT_ONCE], model.head_weight)
        found = F.linear(packed[start : start + AT_ONCE], model.head_weight)
        into.tolerance = max(into.tolerance, LOGIT_TOLERANCE * float(expected.abs().max()))
        place = f"{where}, from its token {start} on"
        compare_tensors("token and id", expected, found, into.tolerance, place, into)


def _alone(batch: Batch, begin: int, end: int) -> Batch:
    """One document of a batch of one row, as a batch of its own."""
    part = dataclasses.replace(
        batch,
        ids=batch.ids[:, begin:end],
        targets=batch.targets[:, begin:end],
        mask=batch.mask[:, begin:end],
        positions=torch.arange(end - begin, device=batch.ids.device)[None],
        doc_ids=torch.zeros_like(batch.doc_ids[:, begin:end]),
        extras={},
    )
    return part
