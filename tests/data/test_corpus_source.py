"""The source: the same sequence for any ranks, micro-batches, threads, and after any stop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.data.batch import Batch
from llmexp.data.config import LoaderSpec
from llmexp.data.shards import Shards, ShardWriter
from llmexp.data.source import CorpusSource


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    folder = tmp_path_factory.mktemp("shards")
    with ShardWriter(folder / "train", vocab_size=500, tokenizer="", chat=False, shard_tokens=60) as writer:
        for k in range(50):
            writer.write([k] * (3 + k % 7), name=f"file.py:{k}")
    return Shards(folder, "train")


def _source(shards: Shards, **changes: int) -> CorpusSource:
    settings_ = {"seed": 5, "global_batch": 12, "seq_len": 8, "workers": 0, **changes}
    return CorpusSource(shards=shards, **settings_)


def _same(a: Batch, b: Batch) -> bool:
    names = ("ids", "targets", "mask", "positions", "doc_ids")
    return a.sample_ids == b.sample_ids and all(torch.equal(getattr(a, n), getattr(b, n)) for n in names)


@settings(max_examples=25, deadline=None)
@given(
    world=st.sampled_from([1, 2, 3, 4, 6, 12]),
    micro=st.integers(1, 12),
    workers=st.integers(0, 2),
    step=st.integers(0, 9),
)
def test_any_cut_is_the_same_step(shards: Shards, world: int, micro: int, workers: int, step: int) -> None:
    whole = concatenate(_source(shards).step(step))
    parts = []
    for rank in range(world):
        source = _source(shards, rank=rank, world=world, micro_batch=micro, workers=workers)
        parts += source.step(step)
        source.close()
    assert _same(concatenate(parts), whole)


@settings(max_examples=25, deadline=None)
@given(stop=st.integers(0, 12), world=st.sampled_from([1, 2, 3]))
def test_what_is_resumed_goes_on_as_if_nothing_was(shards: Shards, stop: int, world: int) -> None:
    first = _source(shards)
    before = [first.step(k) for k in range(stop)]
    state = first.state_dict()
    del before
    second = _source(shards, world=world)
    second.load_state_dict(state)
    assert [second.sample_ids(k) for k in range(stop, 15)] == [first.sample_ids(k) for k in range(stop, 15)]


def test_another_global_batch_goes_on_after_the_samples_consumed(shards: Shards) -> None:
    first = _source(shards)
    first.step(4)
    second = _source(shards, global_batch=6)
    second.load_state_dict(first.state_dict())
    assert second.sample_ids(5) == list(range(60, 66))


def test_steps_may_be_asked_for_again_and_out_of_order(shards: Shards) -> None:
    ahead, plain = _source(shards, workers=2), _source(shards)
    for step in (0, 1, 2, 1, 9, 0):
        assert _same(ahead.step(step)[0], plain.step(step)[0])
    ahead.close()


def test_a_batch_names_its_documents(shards: Shards) -> None:
    batch = _source(shards).step(0)[0]
    named = {int(name.rsplit(":", 1)[1]) for name in batch.documents()}
    assert named == set(batch.ids[batch.doc_ids >= 0].tolist())


def test_several_inputs_are_mixed(shards: Shards, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "train", vocab_size=500, tokenizer="", chat=False) as writer:
        writer.write([400] * 200)
    loader = LoaderSpec(seq_len=8, mixture=[1, 3], workers=0)
    source = loader.build(shards=[shards, Shards(tmp_path, "train")], seed=0, global_batch=4096)
    ids = concatenate(source.step(0)).ids
    assert int((ids[:, 0] == 400).sum()) == 3072


def test_a_global_batch_that_ranks_cannot_share_is_refused(shards: Shards) -> None:
    with pytest.raises(ValueError, match=r"trainer\.global_batch=12"):
        _source(shards, world=5)


def test_reading_ahead_leaves_nothing_to_wait_for(shards: Shards) -> None:
    import time

    source = _source(shards, workers=1)
    source.step(0)
    time.sleep(0.2)
    source.waited = 0.0
    source.step(1)
    assert source.waited < 0.05
    source.close()


def concatenate(batches: list[Batch]) -> Batch:
    """One batch of the rows of several batches of one source, of equal length and equal extras."""
    return Batch(
        ids=torch.cat([batch.ids for batch in batches]),
        targets=torch.cat([batch.targets for batch in batches]),
        mask=torch.cat([batch.mask for batch in batches]),
        positions=torch.cat([batch.positions for batch in batches]),
        doc_ids=torch.cat([batch.doc_ids for batch in batches]),
        extras={name: torch.cat([batch.extras[name] for batch in batches]) for name in batches[0].extras},
        sample_ids=[i for batch in batches for i in batch.sample_ids],
        name_documents=batches[0].name_documents,
    )


def test_moving_a_batch_keeps_everything(shards: Shards) -> None:
    batch = _source(shards).step(0)[0]
    batch.extras["weight"] = torch.ones(len(batch))
    moved = batch.to("cpu")
    assert _same(moved, batch)
    assert moved.extras["weight"].shape == (len(batch),)
    assert moved.documents() == batch.documents()
