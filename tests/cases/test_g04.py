"""G04: prompts that fill the length left no token to learn from, and nothing said so (trl#6668, #6702)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.corpus.faults import BadData
from llmexp.corpus.records import CorpusWriter
from llmexp.data.shards import Shards
from llmexp.data.source import CorpusSource
from llmexp.data.tokenize import tokenize
from llmexp.tokenizer.config import BytesSpec

INPUT = Path(__file__).parent / "inputs" / "g04_long_prompt.jsonl"


def _shards(folder: Path, extra: list[list[dict[str, str]]]) -> Shards:
    rows = [json.loads(line) for line in INPUT.read_text().splitlines()]
    talks = [[("user", r["prompt"]), ("assistant", r["completion"])] for r in rows]
    conversations = [[{"role": role, "content": text} for role, text in talk] for talk in talks] + extra
    with CorpusWriter(folder / "corpus") as writer:
        for k, messages in enumerate(conversations):
            writer.write("train", {"id": str(k), "messages": messages, "source": "g04", "kind": "chat"})
    (folder / "tokenizer").mkdir()
    BytesSpec().build(out=folder / "tokenizer")
    tokenize(folder / "corpus", folder / "tokenizer", folder / "shards")
    return Shards(folder / "shards", "train")


@pytest.mark.parametrize("packing", ["pad", "best_fit"])
def test_a_length_at_which_nothing_counts_is_refused_with_counts(tmp_path: Path, packing: str) -> None:
    shards = _shards(tmp_path, [])
    with pytest.raises(BadData, match=r"of 8 documents, 8 have none within loader\.seq_len=16.*Raise"):
        CorpusSource(shards=shards, seed=0, global_batch=1, seq_len=16, packing=packing)


@pytest.mark.parametrize("packing", ["pad", "best_fit"])
def test_dropped_conversations_are_counted_where_some_are_kept(tmp_path: Path, packing: str) -> None:
    short = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "1"}]
    shards = _shards(tmp_path, [short])
    source = CorpusSource(shards=shards, seed=0, global_batch=1, seq_len=32, packing=packing)
    assert source.report[0]["n_dropped"] == 8
    assert source.report[0]["n_rows"] == 1
    assert source.step(0)[0].mask.any()


def test_whole_conversations_are_kept_where_they_fit(tmp_path: Path) -> None:
    source = CorpusSource(shards=_shards(tmp_path, []), seed=0, global_batch=8, seq_len=256, packing="pad")
    (batch,) = source.step(0)
    assert source.report[0]["n_dropped"] == 0
    assert batch.mask.any(dim=1).all()
