"""tiktoken's engine gives what `tokenizers` gives, or is not used, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from llmexp.tokenizer.engine import sample_texts
from llmexp.tokenizer.folder import read_folder
from llmexp.tokenizer.ranks import merges_of, split_below
from llmexp.tokenizer.tokenizer import Tokenizer

NASTY = [
    "",
    " ",
    "\n \n\t\r\n   x",
    "<|endoftext|>",
    "a<|im_start|>user\nhi<|im_end|>b <|pad|>",
    "naïve e\u0301 ﬁ 👩‍👩‍👧‍👦 \u200b\ufeff\x00",
    "٣٤٥ １２３ ½ 3.14",
    "I'LL we've 'tis ſ'ſ",
    "x" * 5000 + " " * 5000,
    *sample_texts(),
]


def _reference(folder: Path) -> Backend:
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.encode_special_tokens = True
    return backend


def _changed(folder: Path, **changes: Any) -> Tokenizer:
    content, config = read_folder(folder)
    return Tokenizer({**content, **changes}, config)


def test_trained_bpe_is_encoded_by_tiktoken(bpe: Tokenizer) -> None:
    assert bpe.engine == "tiktoken", bpe.engine_reason


def test_bytes_are_encoded_by_tiktoken_as_themselves(bytes_tokenizer: Tokenizer) -> None:
    assert bytes_tokenizer.engine == "tiktoken"
    assert bytes_tokenizer.encode("aé<|pad|>") == list("aé<|pad|>".encode())


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_both_engines_agree_on_nasty_text(bpe: Tokenizer, bpe_folder: Path, text: str) -> None:
    assert bpe.encode(text) == _reference(bpe_folder).encode(text, add_special_tokens=False).ids


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60) | st.text(alphabet=" \n\t\rab1'!é<|im_end>", max_size=60))
def test_both_engines_agree_on_any_text(bpe: Tokenizer, bpe_folder: Path, text: str) -> None:
    assert bpe.encode(text) == _reference(bpe_folder).encode(text, add_special_tokens=False).ids


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=60))
def test_decoding_gives_the_text_back(bpe: Tokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode(text)) == text


@settings(max_examples=50, deadline=None)
@given(text=st.text(max_size=60))
def test_the_bytes_of_tokens_sum_to_those_of_the_text(bpe: Tokenizer, text: str) -> None:
    assert bpe.token_bytes[bpe.encode(text)].sum() == len(text.encode())


def test_a_special_token_in_a_text_is_text_under_either_engine(bpe: Tokenizer, bpe_folder: Path) -> None:
    slow = _changed(bpe_folder, normalizer={"type": "NFKC"})
    assert slow.engine == "tokenizers"
    assert "NFKC" in slow.engine_reason
    text = "a <|endoftext|> b <|im_end|>"
    assert slow.encode(text) == bpe.encode(text)
    assert not set(bpe.encode(text)) & set(bpe.special_ids.values())


def test_lone_surrogates_are_replaced_and_pairs_joined(bpe: Tokenizer) -> None:
    assert bpe.decode(bpe.encode("a\ud800b\ud83d\ude00c")) == "a\ufffdb😀c"


def test_a_run_of_a_million_blanks_is_encoded(bpe: Tokenizer, bpe_folder: Path) -> None:
    text = " " * 1_000_000 + "x"
    assert bpe.encode(text) == _reference(bpe_folder).encode(text, add_special_tokens=False).ids


def test_nfc_runs_first(bpe_folder: Path) -> None:
    nfc = _changed(bpe_folder, normalizer={"type": "NFC"})
    assert nfc.engine == "tiktoken"
    assert nfc.encode("e\u0301") == nfc.encode("é")


def test_added_tokens_that_are_not_special_are_cut_out_of_text(bpe_folder: Path) -> None:
    content, config = read_folder(bpe_folder)
    added = {**content["added_tokens"][0], "id": 1000, "content": "<think>", "special": False}
    tokenizer = Tokenizer({**content, "added_tokens": [*content["added_tokens"], added]}, config)
    assert tokenizer.engine == "tiktoken"
    assert tokenizer.vocab_size == 1001
    assert 1000 in tokenizer.encode("a <think> b")


def test_reordered_merges_are_noticed(bpe_folder: Path) -> None:
    content, _ = read_folder(bpe_folder)
    model = content["model"]
    merges = [*model["merges"][:-2], model["merges"][-1], model["merges"][-2]]
    changed = _changed(bpe_folder, model={**model, "merges": merges})
    assert changed.engine == "tokenizers"
    assert "order of the ids" in changed.engine_reason


def test_a_missing_merge_is_noticed(bpe_folder: Path) -> None:
    model = read_folder(bpe_folder)[0]["model"]
    changed = _changed(bpe_folder, model={**model, "merges": model["merges"][:-1]})
    assert changed.engine == "tokenizers"
    assert "no merge makes" in changed.engine_reason


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"pre_tokenizer": None}, "not cut into words"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
        ({"normalizer": {"type": "Lowercase"}}, "Lowercase"),
    ],
)
def test_what_tiktoken_cannot_do_is_left_to_tokenizers(
    bpe_folder: Path, change: dict[str, Any], reason: str
) -> None:
    tokenizer = _changed(bpe_folder, **change)
    assert tokenizer.engine == "tokenizers"
    assert reason in tokenizer.engine_reason


def test_a_possessive_count_is_not_trusted(bpe_folder: Path) -> None:
    pre = json.loads(json.dumps(read_folder(bpe_folder)[0]["pre_tokenizer"]))
    pre["pretokenizers"][0]["pattern"]["Regex"] = r"\p{N}{1,3}+|[\s\S]"
    assert _changed(bpe_folder, pre_tokenizer=pre).engine == "tokenizers"


def test_a_word_level_tokenizer_loads_with_its_own_engine() -> None:
    backend = Backend(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.normalizer = normalizers.NFC()
    backend.add_special_tokens(["<unk>", "</s>"])
    tokenizer = Tokenizer(json.loads(backend.to_str()), {"eos_token": "</s>"})
    assert (tokenizer.engine, tokenizer.eos_id, tokenizer.bos_id) == ("tokenizers", 1, None)
    assert tokenizer.encode("a b </s>")[:2] == [2, 3]


@settings(max_examples=20, deadline=None)
@given(words=st.lists(st.text("abc ", min_size=1, max_size=12), min_size=3, max_size=30))
def test_ranks_and_merges_of_any_trained_bpe_are_each_others(words: list[str]) -> None:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(
        words, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(backend.to_str())["model"]
    from llmexp.tokenizer.ranks import equal_ranks, to_bytes

    vocab = {to_bytes(token) or b"": k for token, k in model["vocab"].items()}
    merges = [(to_bytes(a) or b"", to_bytes(b) or b"") for a, b in model["merges"]]
    ranks, reason = equal_ranks(vocab, merges, whole_words=False)
    assert ranks == vocab, reason
    assert merges_of(ranks) == merges


def test_the_split_of_a_token_is_what_lower_ranks_leave() -> None:
    ranks = {bytes([b]): b for b in range(256)} | {b"ab": 256, b"bc": 257, b"abc": 258, b"cab": 259}
    assert split_below(b"abc", ranks) == [b"ab", b"c"]
    assert split_below(b"cab", ranks) == [b"c", b"ab"]
