"""Packing: every token where it belongs, none twice."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.data.packing import best_fit, pack
from llmexp.data.shards import Shards, ShardWriter
from llmexp.data.source import CorpusSource, heldout_batches

lengths_strategy = st.lists(st.integers(1, 25), min_size=1, max_size=20).filter(lambda ls: max(ls) > 1)


def make_shards(folder: Path, lengths: list[int], masks: list[list[int]] | None = None) -> Shards:
    """Documents in which every token is another."""
    with ShardWriter(
        folder / "train", vocab_size=70_000, tokenizer="", chat=masks is not None, shard_tokens=40
    ) as writer:
        begin = 1
        for k, n in enumerate(lengths):
            writer.write(range(begin, begin + n), name=f"d{k}", mask=masks[k] if masks else None)
            begin += n
    return Shards(folder, "train")


def _targets_of(lengths: list[int]) -> list[int]:
    """Every token but the first of each document."""
    ends = np.cumsum(lengths).tolist()
    return sorted(t for end, n in zip(ends, lengths, strict=True) for t in range(end - n + 2, end + 1))


@settings(max_examples=60, deadline=None)
@given(
    lengths=lengths_strategy, seq_len=st.integers(2, 12), packing=st.sampled_from(["documents", "best_fit"])
)
def test_an_epoch_predicts_every_token_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seq_len: int, packing: str
) -> None:
    shards = make_shards(tmp_path_factory.mktemp("s"), lengths)
    source = CorpusSource(shards=shards, seed=3, global_batch=1, seq_len=seq_len, packing=packing, workers=0)
    batches = [source.step(k)[0] for k in range(len(pack(shards, seq_len, packing)))]
    assert sorted(t for b in batches for t in b.targets[b.mask].tolist()) == _targets_of(lengths)


@settings(max_examples=40, deadline=None)
@given(
    lengths=lengths_strategy,
    seq_len=st.integers(2, 12),
    packing=st.sampled_from(["documents", "best_fit", "pad"]),
)
def test_a_batch_keeps_its_promises(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seq_len: int, packing: str
) -> None:
    """Targets are the next ids of the same document, positions restart, padding is marked."""
    shards = make_shards(tmp_path_factory.mktemp("s"), lengths)
    source = CorpusSource(shards=shards, seed=3, global_batch=2, seq_len=seq_len, packing=packing, workers=0)
    batch = source.step(0)[0]
    real = batch.doc_ids >= 0
    assert (batch.ids[~real] == 0).all()
    assert not batch.mask[~real].any()
    assert (batch.targets[batch.mask] == batch.ids[batch.mask] + 1).all()
    inside = real[:, 1:] & (batch.doc_ids[:, 1:] == batch.doc_ids[:, :-1])
    steps = batch.positions[:, 1:] - batch.positions[:, :-1]
    assert (steps[inside] == 1).all()
    assert (batch.positions[:, 1:][~inside] == 0).all()
    assert (batch.ids[:, 1:][inside] == batch.ids[:, :-1][inside] + 1).all()


@settings(max_examples=40, deadline=None)
@given(lengths=lengths_strategy, seq_len=st.integers(2, 12), world=st.integers(1, 3))
def test_evaluation_counts_every_token_once_over_all_ranks(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seq_len: int, world: int
) -> None:
    shards = make_shards(tmp_path_factory.mktemp("s"), lengths)
    batches = [
        batch
        for rank in range(world)
        for batch in heldout_batches(shards, seq_len=seq_len, batch_size=3, rank=rank, world=world)
    ]
    assert sorted(t for b in batches for t in b.targets[b.mask].tolist()) == _targets_of(lengths)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 16), max_size=60))
def test_best_fit_fills_bins_and_loses_nothing(sizes: list[int]) -> None:
    order, starts = best_fit(np.array(sizes, np.int64), 16)
    assert sorted(order.tolist()) == list(range(len(sizes)))
    fills = [sum(sizes[k] for k in order[a:b]) for a, b in itertools.pairwise(starts)]
    assert all(0 < fill <= 16 for fill in fills)
    assert sum(fill <= 8 for fill in fills) <= 1, "two bins that are half empty would fit in one"


def test_neighbours_of_one_length_do_not_share_rows() -> None:
    order, starts = best_fit(np.full(800, 4, np.int64), 32)
    rows = [sorted(order[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    neighbours = sum(b - a == 1 for row in rows for a, b in itertools.pairwise(row))
    assert neighbours < 0.05 * 800, "copies that follow each other would fill whole rows"


def test_a_document_longer_than_a_padded_row_is_truncated_and_counted(tmp_path: Path) -> None:
    rows = pack(make_shards(tmp_path, [3, 9, 5, 6, 1]), 4, "pad")
    assert [(p.doc, p.start, p.end) for k in range(len(rows)) for p in rows[k]] == [
        (0, 0, 3),
        (1, 0, 4),
        (2, 0, 4),
        (3, 0, 4),
    ]
    assert vars(rows.report) == {"n_docs": 5, "n_rows": 4, "n_truncated": 2, "n_dropped": 1}


def test_a_conversation_is_packed_whole_or_truncated_never_continued(tmp_path: Path) -> None:
    masks = [[0, 1, 1], [0, 0, 1, 0, 0, 1], [0] * 5 + [1]]
    rows = pack(make_shards(tmp_path, [3, 6, 6], masks), 4, "best_fit")
    pieces = [p for k in range(len(rows)) for p in rows[k]]
    assert {p.doc for p in pieces} == {0, 1}
    assert all(p.start == 0 for p in pieces)
    assert (rows.report.n_truncated, rows.report.n_dropped) == (1, 1)


def test_the_mask_of_a_conversation_is_that_of_the_target(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [4], [[0, 0, 1, 0]])
    batch = CorpusSource(shards=shards, seed=0, global_batch=1, seq_len=4).step(0)[0]
    assert batch.mask[0].tolist() == [False, True, False, False]


def test_padded_rows_are_as_long_as_the_longest_needs(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [5, 40])
    source = CorpusSource(shards=shards, seed=0, global_batch=2, micro_batch=1, seq_len=100, packing="pad")
    assert Counter(b.ids.shape[1] for b in source.step(0)) == {32: 1, 64: 1}
