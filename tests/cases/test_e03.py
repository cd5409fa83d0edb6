"""E03: ids above 65,535 wrapped in silence (LLM-Shearing#65, transformers#2825)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.data.shards import Shards, ShardWriter

CASE = json.loads((Path(__file__).parent / "inputs" / "e03_ids.json").read_text())


@pytest.mark.parametrize("vocab_size, dtype", [(int(k), v) for k, v in CASE["dtype_by_vocab_size"].items()])
def test_the_width_follows_the_vocabulary_and_stands_in_the_header(
    tmp_path: Path, vocab_size: int, dtype: str
) -> None:
    with ShardWriter(tmp_path / "train", vocab_size=vocab_size, tokenizer="", chat=False) as writer:
        writer.write([0, vocab_size - 1])
    assert json.loads((tmp_path / "train" / "header.json").read_text())["dtype"] == dtype
    assert Shards(tmp_path, "train").tokens(0).tolist() == [0, vocab_size - 1]


def test_ids_come_back_as_they_were_written(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "train", vocab_size=131_072, tokenizer="", chat=False) as writer:
        for doc in CASE["docs"]:
            writer.write(doc)
    shards = Shards(tmp_path, "train")
    assert [shards.tokens(k).tolist() for k in range(len(shards))] == CASE["docs"]


@pytest.mark.parametrize("bad", [65_535, 65_536, 70_000, -1])
def test_an_id_outside_the_vocabulary_is_refused_when_written(tmp_path: Path, bad: int) -> None:
    with ShardWriter(tmp_path / "train", vocab_size=65_535, tokenizer="", chat=False) as writer:
        writer.write([1, 2], name="good")
        with pytest.raises(ValueError, match=f"'wide'.*{bad}"):
            writer.write([0, bad], name="wide")


def test_added_tokens_count_towards_the_width() -> None:
    """A tokenizer of 65,536 ids with one token more needs the wide type."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    from llmexp.data.shards import dtype_for
    from llmexp.tokenizer.tokenizer import Tokenizer

    backend = Backend(models.WordLevel({f"w{k}": k for k in range(65_536)}, unk_token="w0"))
    assert dtype_for(Tokenizer(json.loads(backend.to_str()), {}).vocab_size).name == "uint16"
    backend.add_special_tokens(["<|end|>"])
    assert dtype_for(Tokenizer(json.loads(backend.to_str()), {}).vocab_size).name == "uint32"
