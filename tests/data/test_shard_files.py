"""Shards on disk: what is written is read, over any number of files, and damage is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.corpus.faults import BadData
from llmexp.data.shards import Shards, ShardWriter

docs_strategy = st.lists(st.lists(st.integers(0, 99), min_size=0, max_size=9), min_size=1, max_size=12)


def _write(folder: Path, docs: list[list[int]], *, chat: bool = False, shard_tokens: int = 8) -> Shards:
    settings_: dict[str, Any] = {
        "vocab_size": 100,
        "tokenizer": "t",
        "chat": chat,
        "shard_tokens": shard_tokens,
    }
    with ShardWriter(folder / "train", **settings_) as writer:
        for k, doc in enumerate(docs):
            mask = [i % 2 for i in range(len(doc))] if chat else None
            writer.write(doc, name=f"doc {k} é", mask=mask, n_bytes=len(doc))
    return Shards(folder, "train")


@settings(max_examples=60, deadline=None)
@given(docs=docs_strategy, chat=st.booleans(), shard_tokens=st.integers(1, 30))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, docs: list[list[int]], chat: bool, shard_tokens: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards = _write(folder, docs, chat=chat, shard_tokens=shard_tokens)
    assert [shards.tokens(k).tolist() for k in range(len(shards))] == docs
    assert shards.lengths().tolist() == [shards.length(k) for k in range(len(docs))] == list(map(len, docs))
    masks = [shards.mask(k).astype(int).tolist() for k in range(len(shards))]
    assert masks == [[i % 2 if chat else 1 for i in range(len(doc))] for doc in docs]
    assert [shards.name(k) for k in range(len(docs))] == [f"doc {k} é" for k in range(len(docs))]
    flat = [(k, i) for k, doc in enumerate(docs) for i in range(len(doc))]
    assert [shards.at(token) for token in range(shards.n_tokens)] == flat
    firsts = [next((i for i in range(1, len(m)) if m[i]), len(m)) for m in masks]
    assert shards.first_counted().tolist() == firsts


def test_a_part_of_a_document_is_a_view_of_the_file(tmp_path: Path) -> None:
    shards = _write(tmp_path, [[1, 2, 3, 4], [5, 6, 7]])
    part = shards.tokens(1, 1, 99)
    assert part.tolist() == [6, 7]
    assert isinstance(part, np.memmap)


def test_the_header_counts(tmp_path: Path) -> None:
    header = _write(tmp_path, [[1, 2, 3], [4]], chat=True).header
    assert (header.n_docs, header.n_tokens, header.n_counted, header.n_bytes) == (2, 4, 1, 4)
    assert (header.dtype, header.vocab_size, header.tokenizer, header.chat) == ("uint16", 100, "t", True)


def test_a_file_of_another_size_is_damaged(tmp_path: Path) -> None:
    _write(tmp_path, [[1, 2, 3]])
    file = tmp_path / "train" / "00000.tokens"
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(BadData, match=r"00000\.tokens is damaged"):
        Shards(tmp_path, "train")


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="heldout"):
        Shards(tmp_path, "heldout")


def test_what_an_error_cut_short_cannot_be_read(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "train", vocab_size=100, tokenizer="", chat=False)
    with pytest.raises(ValueError, match="outside"), writer:
        writer.write([1, 2, 100])
    with pytest.raises(BadData):
        Shards(tmp_path, "train")


@pytest.mark.parametrize("chat", [True, False])
def test_masks_are_for_chats_alone(tmp_path: Path, chat: bool) -> None:
    with ShardWriter(tmp_path / "train", vocab_size=9, tokenizer="", chat=chat) as writer:
        with pytest.raises(ValueError, match="masks"):
            writer.write([1], mask=None if chat else [1])
        with pytest.raises(ValueError, match="do not fit"):
            writer.write_many([1, 2], lengths=[1], names=["x"], n_bytes=0, mask=None)


def test_an_empty_split_can_be_opened(tmp_path: Path) -> None:
    assert len(_write(tmp_path, [])) == 0


def test_the_first_token_of_a_document_is_no_target(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "train", vocab_size=100, tokenizer="t", chat=False) as writer:
        writer.write_many(range(9), lengths=[4, 0, 1, 4], names=list("abcd"), n_bytes=9, mask=None)
    assert writer.header.n_counted == 3 + 0 + 0 + 3
