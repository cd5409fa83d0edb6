"""Tokenizers of other tools become the same folder."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from llmexp.config.mistakes import UserError
from llmexp.store.fingerprint import ContentHasher
from llmexp.tokenizer.config import BpeSpec, HuggingFaceSpec, TiktokenSpec
from llmexp.tokenizer.folder import read_folder
from llmexp.tokenizer.imported import pin_revision
from llmexp.tokenizer.ranks import to_bytes
from llmexp.tokenizer.tokenizer import Tokenizer

tiktoken = pytest.importorskip("tiktoken")


@pytest.fixture(scope="module")
def ranks_file(bpe_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained tokenizer's ranks in tiktoken's format, with one token that merging never reaches."""
    content, _ = read_folder(bpe_folder)
    special = {t["content"] for t in content["added_tokens"]}
    tokens = sorted((k, t) for t, k in content["model"]["vocab"].items() if t not in special)
    raw = [to_bytes(token) or b"" for _, token in tokens] + [b"\x01\x02\x03\x04"]
    file = tmp_path_factory.mktemp("ranks") / "own.tiktoken"
    file.write_text("".join(f"{base64.b64encode(t).decode()} {k}\n" for k, t in enumerate(raw)))
    return file


def test_a_file_of_ranks_encodes_as_tiktoken_does(ranks_file: Path, tmp_path: Path) -> None:
    from tiktoken.load import load_tiktoken_bpe

    from llmexp.tokenizer.bpe import WORDS
    from llmexp.tokenizer.engine import sample_texts

    TiktokenSpec(name=str(ranks_file)).build(out=tmp_path)
    ours = Tokenizer.load(tmp_path)
    theirs = tiktoken.Encoding(
        "own", pat_str=WORDS["triple"], mergeable_ranks=load_tiktoken_bpe(str(ranks_file)), special_tokens={}
    )
    assert ours.engine == "tiktoken", ours.engine_reason
    for text in [*sample_texts(), "\x01\x02\x03\x04 12345"]:
        assert ours.encode(text) == theirs.encode_ordinary(text)
        assert ours._backend.encode(text, add_special_tokens=False).ids == theirs.encode_ordinary(text)


def test_a_file_of_ranks_that_changed_is_read_again(ranks_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.tiktoken"
    sizes = []
    for lines in (ranks_file.read_text().splitlines(), ranks_file.read_text().splitlines()[:-1]):
        file.write_text("\n".join(lines))
        TiktokenSpec(name=str(file)).build(out=tmp_path)
        sizes.append(Tokenizer.load(tmp_path).vocab_size)
    assert sizes[1] == sizes[0] - 1


def test_a_broken_line_of_ranks_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.tiktoken").write_text("YQ== 0\nYg==\n")
    with pytest.raises(ValueError, match=r"own\.tiktoken, line 2"):
        TiktokenSpec(name=str(tmp_path / "own.tiktoken")).build(out=tmp_path)


def test_special_tokens_follow_the_ranks(ranks_file: Path, tmp_path: Path) -> None:
    TiktokenSpec(name=str(ranks_file)).build(out=tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    n_ranks = len(ranks_file.read_text().splitlines())
    assert sorted(tokenizer.special_ids.values()) == list(range(n_ranks, n_ranks + 4))
    assert tokenizer.vocab_size == n_ranks + 4
    assert tokenizer.encode_chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])[0]


def test_a_folder_is_taken_as_it_is(bpe_folder: Path, bpe: Tokenizer, tmp_path: Path) -> None:
    HuggingFaceSpec(name=str(bpe_folder)).build(out=tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == bpe.fingerprint


def test_a_template_in_a_file_of_its_own_is_taken_along(bpe_folder: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    content, config = read_folder(bpe_folder)
    del config["chat_template"]
    config["eos_token"] = {"content": "<|im_end|>", "lstrip": False}
    (source / "tokenizer.json").write_text(json.dumps(content))
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    (source / "chat_template.jinja").write_text("{{ messages[0].content }}")
    HuggingFaceSpec(name=str(source)).build(out=out)
    tokenizer = Tokenizer.load(out)
    assert tokenizer.render([{"role": "user", "content": "hi"}]) == "hi"
    assert tokenizer.eos_id == tokenizer.special_ids["<|im_end|>"]


def test_the_users_template_replaces_the_tokenizers_own(tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{{ messages[0].content }}!")
    out = tmp_path / "out"
    out.mkdir()
    BpeSpec(vocab_size=270, chat_template=str(template)).build(texts=["some text"], out=out)
    assert Tokenizer.load(out).render([{"role": "user", "content": "hi"}]) == "hi!"


def test_a_folder_of_vocabulary_and_merges_is_converted(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source, out = tmp_path / "gpt2", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    from llmexp.tokenizer.ranks import BYTE_TO_CHAR

    vocab = {char: k for k, char in enumerate(sorted(BYTE_TO_CHAR.values()))} | {
        "he": 256,
        "<|endoftext|>": 257,
    }
    (source / "vocab.json").write_text(json.dumps(vocab))
    (source / "merges.txt").write_text("#version: 0.2\nh e\n")
    (source / "config.json").write_text('{"model_type": "gpt2"}')
    (source / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    HuggingFaceSpec(name=str(source)).build(out=out)
    assert Tokenizer.load(out).encode("he")[0] == 256


@pytest.mark.parametrize("spec", [HuggingFaceSpec(name="./nowhere"), TiktokenSpec(name="cl100k")])
def test_a_name_that_is_nothing_is_a_mistake(spec: HuggingFaceSpec | TiktokenSpec) -> None:
    mistakes = list(spec.check())
    assert [m.path for m in mistakes] == ["name"]
    assert mistakes[0].remedy


def test_the_content_of_local_files_counts_in_what_a_tokenizer_is(bpe_folder: Path, tmp_path: Path) -> None:
    folder, template, ranks = tmp_path / "a[1]", tmp_path / "own.jinja", tmp_path / "own.tiktoken"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((bpe_folder / "tokenizer.json").read_bytes())
    (folder / "model.safetensors").write_bytes(b"weights")
    template.write_text("{{ messages[0].content }}")
    ranks.write_text("YQ== 0\n")
    hasher = ContentHasher(None)
    taken = HuggingFaceSpec(name=str(folder), chat_template=str(template))
    before = hasher.content_hash(taken.source_paths())
    (folder / "model.safetensors").write_bytes(b"others")
    assert hasher.content_hash(taken.source_paths()) == before
    template.write_text("{{ messages[-1].content }}")
    assert hasher.content_hash(taken.source_paths()) != before
    assert TiktokenSpec(name=str(ranks)).source_paths() == [str(ranks)]
    assert not BpeSpec().source_paths() + TiktokenSpec(name="gpt2").source_paths()
    assert not HuggingFaceSpec(name="owner/name").source_paths()


def test_a_tokenizer_on_the_hub_is_read_at_the_commit_that_it_was_known_by(
    bpe_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--someone--small"
    shutil.copytree(bpe_folder, cached / "snapshots" / ("1" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1" * 40)
    spec = HuggingFaceSpec(name="someone/small")
    assert pin_revision(spec) == "1" * 40
    (cached / "snapshots" / ("2" * 40)).mkdir()
    (cached / "refs" / "main").write_text("2" * 40)  # a push in between
    (tmp_path / "out").mkdir()
    spec.build(out=tmp_path / "out")
    assert Tokenizer.load(tmp_path / "out").vocab_size == Tokenizer.load(bpe_folder).vocab_size
    with pytest.raises(UserError, match=r"tokenizer\.name=someone/absent is no folder"):
        pin_revision(HuggingFaceSpec(name="someone/absent"))


def test_a_folder_of_a_tokenizer_has_no_commit(bpe_folder: Path) -> None:
    assert pin_revision(HuggingFaceSpec(name=str(bpe_folder))) is None
