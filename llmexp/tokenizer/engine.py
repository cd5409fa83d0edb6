"""Encoding of ordinary text: by tiktoken's engine where that is proven equal, else by `tokenizers`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from llmexp.tokenizer.ranks import equal_ranks, to_bytes

Ids = npt.NDArray[np.uint32]

GPT2_WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The words that a byte-level pre-tokenizer without a pattern of its own cuts (GPT-2)."""


POSSESSIVE_COUNT = re.compile(r"(\{\d+(?:,\d*)?\})\+")
"""``{1,3}+``: tiktoken does not go back into it, Oniguruma (in `tokenizers`) repeats it."""


class NotProven(Exception):
    """Why tiktoken's engine is not used."""


class Engine:
    """Encodes text as ordinary text: the text of a special token is text, not the token.

    Both engines give the same ids. Calls release the GIL for most of their time.
    """

    def __init__(self, plain: Any, content: dict[str, Any]) -> None:
        """Take a `tokenizers.Tokenizer` that does not parse special tokens, and its ``tokenizer.json``."""
        self._plain = plain
        self._added = [t["content"] for t in content.get("added_tokens", []) if not t["special"]]
        """Tokens that are cut out of any text, which tiktoken does not do."""
        self._normalize: Callable[[str], str] = _as_it_is
        try:
            encoding = self._prove(content)
        except NotProven as reason:
            self.name, self.reason = "tokenizers", str(reason)
            self._encode = self._by_tokenizers
        else:
            self.name, self.reason = "tiktoken", "the ranks reproduce the merges and a sample agrees"
            self._encoding = encoding
            self._encode = self._by_tiktoken

    def encode(self, text: str) -> Ids:
        """Ids of a well-formed text, (n,) uint32."""
        return self._encode(text)

    def _by_tokenizers(self, text: str) -> Ids:
        return np.array(self._plain.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def _by_tiktoken(self, text: str) -> Ids:
        if self._added and any(token in text for token in self._added):
            return self._by_tokenizers(text)
        try:
            return self._encoding.encode_to_numpy(self._normalize(text), disallowed_special=())
        except ValueError:  # its regex engine gives up on runs of about a million blanks
            return self._by_tokenizers(text)

    def _prove(self, content: dict[str, Any]) -> Any:
        """A `tiktoken.Encoding` that does as ``content`` says.

        Raises:
            NotProven: there is none, or it is not certain.
        """
        import tiktoken

        model = content["model"]
        _require_plain_bpe(model)
        pattern = _word_pattern(content.get("pre_tokenizer"))
        self._normalize = _normalizer(content.get("normalizer"), self._plain)
        added = {t["content"] for t in content.get("added_tokens", [])}
        vocab, merges = _as_byte_strings(model, added)
        ranks, reason = equal_ranks(vocab, merges, whole_words=bool(model.get("ignore_merges")))
        if not ranks:
            raise NotProven(reason)
        encoding = tiktoken.Encoding("llmexp", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        for text in sample_texts():
            ids = encoding.encode_ordinary(self._normalize(text))
            if ids != self._plain.encode(text, add_special_tokens=False).ids:
                raise NotProven(f"a sample differs: {text[:40]!r}")
        return encoding


def sample_texts() -> list[str]:
    """Texts that tell engines apart: scripts, runs of blanks, numbers, contractions, marks, line ends."""
    scripts = "".join(chr(c) for c in range(0x20, 0x30000, 37) if unicodedata.category(chr(c)) != "Cs")
    return [
        scripts,
        " ".join(scripts[::3]),
        "I'll say it's WE'VE DON'T 'tis l'été he'd'd",
        "a  b   c\t\td \t e\n\n f \r\n\r\n  g\u00a0\u00a0h\u2003i\u3000 \v\f\x1c end   ",
        "1 12 123 1234 12345678 3.14159 1,000,000 0x7fff ½ Ⅷ ٣٤٥ १२३",
        "def f(x):\n    return {'a': x[0] ** 2}  # !!\n\n\n\tpass;;;\n",
        "naïve café ＦＵＬＬ ﬁ é\u0301\u0327 한국어 日本語テキスト ไทย हिन्दी العربية 👩‍👩‍👧‍👦🇫🇷 \u200b\ufeff",
        "\x00\x01\x7f\x85\ufffd\ue000\U0010ffff <|endoftext|><|im_start|>user <|im_end|> </s><s>",
        "a" * 300 + " " * 300 + "!?" * 100 + "\n" * 40,
    ]


def _as_it_is(text: str) -> str:
    return text


def _require_plain_bpe(model: dict[str, Any]) -> None:
    if model.get("type") != "BPE":
        raise NotProven(f"the model is {model.get('type')}, not BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise NotProven(f"the model uses {option}")


def _normalizer(normalizer: dict[str, Any] | None, plain: Any) -> Callable[[str], str]:
    """What is done to text first. NFC is left to the tokenizer's own table where it may change something."""
    if normalizer is None:
        return _as_it_is
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    if kinds := [step["type"] for step in steps if step["type"] != "NFC"]:
        raise NotProven(f"the text is normalized by {', '.join(kinds)}")
    own = plain.normalizer

    def nfc(text: str) -> str:
        return text if text.isascii() else own.normalize_str(text)

    return nfc


def _word_pattern(pre_tokenizer: dict[str, Any] | None) -> str:
    """The regular expression that alone cuts text into words."""
    if pre_tokenizer is None:
        raise NotProven("text is not cut into words")
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    kinds = [step["type"] for step in steps]
    last = steps[-1]
    if kinds not in (["Split", "ByteLevel"], ["ByteLevel"]) or last["add_prefix_space"]:
        raise NotProven(f"words are cut by {', '.join(kinds)}")
    if kinds == ["ByteLevel"]:
        if not last.get("use_regex", True):
            raise NotProven("text is not cut into words")
        return GPT2_WORDS
    if last.get("use_regex", True):
        raise NotProven("words are cut twice")
    split = steps[0]
    if (split["behavior"], split["invert"]) not in (("Isolated", False), ("Removed", True)):
        raise NotProven(f"words are cut by a Split that is {split['behavior']}")
    pattern = split["pattern"].get("Regex")
    if pattern is None:
        raise NotProven("words are cut at a fixed string")
    if POSSESSIVE_COUNT.search(pattern):
        raise NotProven("its pattern repeats a counted repetition, which the two engines read differently")
    return pattern


def _as_byte_strings(
    model: dict[str, Any], added: set[str]
) -> tuple[dict[bytes, int], list[tuple[bytes, bytes]]]:
    """Vocabulary and merges in bytes, tokens that are added ones left out."""
    vocab = {}
    for token, rank in model["vocab"].items():
        if token in added:
            continue
        raw = to_bytes(token)
        if not raw:
            raise NotProven(f"the token {token!r} stands for no bytes")
        vocab[raw] = rank
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    merges = [(to_bytes(a) or b"", to_bytes(b) or b"") for a, b in pairs]
    return vocab, merges
