"""Scoring documents with a decoder: each token that counts is scored exactly once.

Shapes: batch = windows in a forward pass, seq = tokens in a window (right-padded), n = scored tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llmexp.evaluate.scores import TokenScores

SORTED_AT_ONCE = 64
"""Micro-batches that are sorted by length together, so that little is padded."""

LOGITS_AT_ONCE = 1 << 24
"""Elements of the (n, vocab) logits held at once: 64 MiB in float32."""


@dataclass(frozen=True)
class Document:
    """One held-out document."""

    ids: np.ndarray
    """(tokens,) integer."""
    mask: np.ndarray | None = None
    """(tokens,) bool: the tokens whose prediction counts; None = all."""


@dataclass(frozen=True)
class Window:
    """A piece of a document that one row of a forward pass sees."""

    ids: np.ndarray
    """(seq,) integer: what the model reads."""
    targets: np.ndarray
    """(seq,) integer: the token after each."""
    counted: np.ndarray
    """(seq,) bool: which targets are scored here."""


def windows(document: Document, *, seq_len: int, overlap: int = 0) -> Iterator[Window]:
    """Cut a document into windows of at most ``seq_len`` that score each target once.

    The first token has nothing before it and is no target, as in training. ``overlap`` tokens of
    context are repeated from the window before. Windows in which nothing counts are left out.
    """
    ids = np.asarray(document.ids, dtype=np.int64)
    counts = np.ones(len(ids), dtype=bool) if document.mask is None else np.asarray(document.mask, dtype=bool)
    scored_up_to = 1
    while scored_up_to < len(ids):
        start = max(0, scored_up_to - 1 - overlap) if scored_up_to > 1 else 0
        stop = min(start + seq_len, len(ids) - 1)
        targets = np.arange(start + 1, stop + 1)
        counted = counts[targets] & (targets >= scored_up_to)
        if counted.any():
            yield Window(ids[start:stop], ids[targets], counted)
        scored_up_to = stop + 1


def batches(stream: Iterable[Window], micro_batch: int) -> Iterator[list[Window]]:
    """Group windows of similar length; holds ``SORTED_AT_ONCE`` micro-batches at a time."""
    pending: list[Window] = []
    for window in stream:
        pending.append(window)
        if len(pending) == SORTED_AT_ONCE * micro_batch:
            yield from _sorted_groups(pending, micro_batch)
            pending = []
    yield from _sorted_groups(pending, micro_batch)


def _sorted_groups(pending: list[Window], micro_batch: int) -> Iterator[list[Window]]:
    pending = sorted(pending, key=lambda window: -len(window.ids))
    for i in range(0, len(pending), micro_batch):
        yield pending[i : i + micro_batch]


def score_documents(
    model: Any,
    documents: Iterable[Document],
    *,
    seq_len: int,
    n_bins: int,
    overlap: int = 0,
    micro_batch: int = 8,
    device: torch.device | str = "cpu",
    done: Callable[[int], None] | None = None,
) -> TokenScores:
    """Score documents with ``model``; the sums of all its counted tokens.

    Every document stands alone: no row holds two. Rows are padded on the right, where causal
    attention never looks, so that no mask is needed. ``done`` is called with the number of
    tokens scored after each forward pass; it may raise to stop.
    """
    scores = TokenScores.empty(n_bins)
    stream = (w for d in documents for w in windows(d, seq_len=seq_len, overlap=overlap))
    training = model.training
    model.eval()
    with torch.inference_mode():
        for group in batches(stream, micro_batch):
            before = scores.n_tokens
            _score(model, group, scores, device)
            if done is not None:
                done(scores.n_tokens - before)
    model.train(training)
    return scores


def _score(model: Any, group: list[Window], scores: TokenScores, device: torch.device | str) -> None:
    """One forward pass over a group of windows; only scored positions reach the head."""
    shape = (len(group), max(len(window.ids) for window in group))
    ids = torch.zeros(shape, dtype=torch.int64)
    targets = torch.zeros(shape, dtype=torch.int64)
    counted = torch.zeros(shape, dtype=torch.bool)
    for row, window in enumerate(group):
        n = len(window.ids)
        ids[row, :n] = torch.from_numpy(window.ids)
        targets[row, :n] = torch.from_numpy(window.targets)
        counted[row, :n] = torch.from_numpy(window.counted)
    hidden = model.hidden(ids.to(device))[counted.to(device)]
    wanted = targets[counted].to(device)
    head: Tensor = model.head_weight
    rows = max(1, LOGITS_AT_ONCE // head.shape[0])
    for i in range(0, len(wanted), rows):
        scores.observe(hidden[i : i + rows] @ head.T, wanted[i : i + rows])
