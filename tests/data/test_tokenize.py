"""The tokenize stage's work: shards that do not depend on workers, with what was left out counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmexp.corpus.faults import BadData
from llmexp.corpus.records import CorpusWriter
from llmexp.data import tokenize as module
from llmexp.data.shards import Shards
from llmexp.data.tokenize import tokenize
from llmexp.tokenizer.config import BpeSpec, BytesSpec
from llmexp.tokenizer.tokenizer import Tokenizer
from llmexp.track.progress import Interrupted

TEXTS = [f"Document {k}.\n\tIt says {k * k} and <|endoftext|> and é." for k in range(60)]


def _corpus(path: Path, train: list[dict[str, Any]], heldout: list[dict[str, Any]] | None = None) -> Path:
    with CorpusWriter(path) as writer:
        for split, records in (("train", train), ("heldout", heldout or [])):
            for k, record in enumerate(records):
                writer.write(split, {"id": f"{split}/{k}", "source": "test", "kind": "prose", **record})
    return path


def _talk(question: str, answer: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": messages, "kind": "chat"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokenizer")
    BpeSpec(vocab_size=400).build(texts=TEXTS, out=out)
    return out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [{"text": text} for text in TEXTS]
    return _corpus(tmp_path_factory.mktemp("corpus"), records[:50], records[50:])


def _files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def shards_path(corpus: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shards")
    tokenize(corpus, tokenizer, out, workers=1)
    return out


def test_a_document_is_its_text_between_begin_and_end(shards_path: Path, tokenizer: Path) -> None:
    loaded = Tokenizer.load(tokenizer)
    shards = Shards(shards_path, "train")
    assert len(shards) == 50
    for k in (0, 17, 49):
        ids = shards.tokens(k).tolist()
        assert ids == [loaded.bos_id, *loaded.encode(TEXTS[k]), loaded.eos_id]
        assert shards.name(k) == f"train/{k}"
    assert shards.header.n_bytes == sum(len(text.encode()) for text in TEXTS[:50])
    assert shards.header.tokenizer == loaded.fingerprint
    assert not (shards_path / "train" / "00000.mask").exists()
    assert len(Shards(shards_path, "heldout")) == 10


@pytest.mark.parametrize("processes", [False, True])
def test_the_number_and_kind_of_workers_change_nothing(
    corpus: Path,
    tokenizer: Path,
    shards_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: bool,
) -> None:
    monkeypatch.setattr(module, "PROCESSES_FROM", 0 if processes else 1 << 60)
    tokenize(corpus, tokenizer, tmp_path, workers=2)
    assert _files(tmp_path) == _files(shards_path)


def test_batches_of_lines_change_nothing_but_where_files_end(
    corpus: Path, tokenizer: Path, shards_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 100)
    tokenize(corpus, tokenizer, tmp_path, workers=3)
    assert _files(tmp_path) == _files(shards_path)


def test_conversations_carry_a_mask_of_the_assistant(tokenizer: Path, tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "corpus", [_talk("one?", "1"), _talk("two?", "2 é")])
    summary = tokenize(corpus, tokenizer, tmp_path / "out")
    loaded = Tokenizer.load(tokenizer)
    shards = Shards(tmp_path / "out", "train")
    assert summary["chat"]
    assert shards.header.chat
    ids, mask = shards.tokens(1), shards.mask(1)
    assert loaded.decode(ids[mask].tolist(), skip_special=False) == "2 é<|im_end|>"
    assert ids[-1] == loaded.eos_id
    assert shards.header.n_bytes == len("1") + len("2 é".encode())
    assert shards.header.n_counted == summary["train"]["counted_tokens"]


def test_the_end_counts_where_the_template_has_no_end_of_a_turn(tmp_path: Path) -> None:
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                        "{% if add_generation_prompt %}assistant: {% endif %}")  # fmt: skip
    (tmp_path / "tokenizer").mkdir()
    BytesSpec(chat_template=str(template)).build(out=tmp_path / "tokenizer")
    corpus = _corpus(tmp_path / "corpus", [_talk("a", "b")])
    tokenize(corpus, tmp_path / "tokenizer", tmp_path / "out")
    shards = Shards(tmp_path / "out", "train")
    loaded = Tokenizer.load(tmp_path / "tokenizer")
    assert shards.tokens(0)[shards.mask(0)].tolist() == [*b"b\n", loaded.eos_id]


def test_records_that_cannot_be_used_are_counted_and_named(tokenizer: Path, tmp_path: Path) -> None:
    good = [_talk("a", str(k)) for k in range(40)]
    corpus = _corpus(tmp_path / "corpus", [*good, {"messages": [{"role": "user", "content": "alone"}]}])
    summary = tokenize(corpus, tokenizer, tmp_path / "out")
    assert summary["train"]["documents"] == 40
    assert summary["train"]["unusable"] == {module.NO_COUNTED_TOKEN: 1}
    assert summary["train"]["unusable_records"] == [{"record": "train/40", "fault": module.NO_COUNTED_TOKEN}]


def test_too_many_of_them_are_an_error(tokenizer: Path, tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "corpus", [{"text": "good"}, {"text": ""}, _talk("a", "b")])
    with pytest.raises(BadData, match=r"2 of 3 records of the split train.*has no text.*train/1"):
        tokenize(corpus, tokenizer, tmp_path / "out")


def test_an_empty_training_split_is_an_error(tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="it is empty"):
        tokenize(_corpus(tmp_path / "corpus", []), tokenizer, tmp_path / "out")


def test_it_stops_when_asked(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        tokenize(corpus, tokenizer, tmp_path, should_stop=lambda: True)
    with pytest.raises(BadData):
        Shards(tmp_path, "train")


def test_a_truncated_file_of_the_corpus_is_named(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    broken = tmp_path / "corpus"
    for file in corpus.rglob("*.zst"):
        target = broken / file.relative_to(corpus)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(BadData, match=r"00000\.jsonl\.zst is damaged"):
        tokenize(broken, tokenizer, tmp_path / "out", chat=False)
