"""Training: size, determinism, where numbers are cut, and the split it learns from."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from llmexp.corpus.records import CorpusWriter
from llmexp.tokenizer.config import BpeSpec, BytesSpec
from llmexp.tokenizer.folder import SPECIAL_TOKENS
from llmexp.tokenizer.tokenizer import Tokenizer
from llmexp.tokenizer.train import train_tokenizer


def _corpus(path: Path, train: list[str], heldout: list[str]) -> Path:
    with CorpusWriter(path) as writer:
        for split, texts in (("train", train), ("heldout", heldout)):
            for k, text in enumerate(texts):
                writer.write(split, {"id": f"{split}{k}", "text": text, "source": "test", "kind": "prose"})
    return path


def test_the_vocabulary_has_the_size_asked_for_special_tokens_included(bpe: Tokenizer) -> None:
    assert bpe.vocab_size == 1000
    assert set(SPECIAL_TOKENS) <= set(bpe.special_ids)


def test_the_same_texts_give_the_same_file(tmp_path: Path, bpe_folder: Path, library: list[str]) -> None:
    BpeSpec(vocab_size=1000).build(texts=library, out=tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (bpe_folder / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("digits, longest", [("single", 1), ("triple", 3)])
def test_numbers_are_cut_as_configured(tmp_path: Path, digits: str, longest: int) -> None:
    BpeSpec(vocab_size=300, digits=digits).build(texts=["123 456 " * 50, "123456123" * 50], out=tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    pieces = [tokenizer.decode([k]) for k in tokenizer.encode("123123")]
    assert max(map(len, pieces)) == longest


def test_nothing_is_learned_from_the_heldout_split(tmp_path: Path) -> None:
    """A word that fills the held-out split alone becomes no token."""
    corpus = _corpus(tmp_path / "corpus", ["plain words " * 30], ["zyzzyva " * 500])
    (tmp_path / "out").mkdir()
    summary = train_tokenizer(BpeSpec(vocab_size=300), corpus, tmp_path / "out")
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert len(tokenizer.encode("zyzzyva")) == len("zyzzyva")
    assert summary["measured_on"] == "heldout"
    assert summary["bytes_per_token"] == pytest.approx(1.0)


def test_training_texts_are_streamed(tmp_path: Path) -> None:
    texts = itertools.chain(["a line of text\n" * 20], itertools.repeat("more and more text "))
    BpeSpec(vocab_size=280, train_bytes=10_000).build(texts=texts, out=tmp_path)
    assert Tokenizer.load(tmp_path).vocab_size <= 280


def test_lone_surrogates_in_training_text_are_replaced(tmp_path: Path) -> None:
    BpeSpec(vocab_size=280).build(texts=["broken \ud800 text " * 5], out=tmp_path)
    assert Tokenizer.load(tmp_path).decode(Tokenizer.load(tmp_path).encode("\ud800")) == "\ufffd"


def test_a_spec_that_learns_needs_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="learned from a corpus"):
        train_tokenizer(BpeSpec(), None, tmp_path)
    with pytest.raises(ValueError, match="no text to learn"):
        train_tokenizer(BpeSpec(), _corpus(tmp_path / "corpus", [], ["held out"]), tmp_path)


def test_a_spec_that_does_not_learn_needs_no_corpus(tmp_path: Path) -> None:
    summary = train_tokenizer(BytesSpec(), None, tmp_path)
    assert summary["vocab_size"] == 256 + len(SPECIAL_TOKENS)
