"""H02: a resumed run repeated data, or every epoch had the same order (accelerate#2823, #4195)."""

from __future__ import annotations

import pytest

from llmexp.data.shards import Shards, ShardWriter
from llmexp.data.source import CorpusSource


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    folder = tmp_path_factory.mktemp("shards")
    with ShardWriter(folder / "train", vocab_size=100, tokenizer="", chat=False) as writer:
        for k in range(40):
            writer.write([k, k + 1, k + 2], name=str(k))
    return Shards(folder, "train")


def _documents(source: CorpusSource, steps: range) -> list[int]:
    """The first id of each row names its document."""
    return [int(k) for step in steps for batch in source.step(step) for k in batch.ids[:, 0]]


def _source(shards: Shards) -> CorpusSource:
    return CorpusSource(shards=shards, seed=0, global_batch=4, seq_len=8, packing="pad")


@pytest.mark.parametrize("stop", [7, 10])
def test_the_order_after_a_stop_is_the_uninterrupted_one(shards: Shards, stop: int) -> None:
    whole = _documents(_source(shards), range(25))
    first = _source(shards)
    begun = _documents(first, range(stop))
    second = _source(shards)
    second.load_state_dict(first.state_dict())
    assert begun + _documents(second, range(stop, 25)) == whole


def test_epochs_are_permutations_and_differ(shards: Shards) -> None:
    seen = _documents(_source(shards), range(30))
    epochs = [seen[k : k + 40] for k in (0, 40, 80)]
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
