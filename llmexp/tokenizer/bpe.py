"""Byte-level BPE: training with Hugging Face `tokenizers`, and the layout that all made here share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmexp.corpus.records import well_formed
from llmexp.tokenizer.folder import DOCUMENT_END, SPECIAL_TOKENS, own_config, write_folder
from llmexp.tokenizer.ranks import BYTE_TO_CHAR, to_chars

WORDS = {
    digits: rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits, number in (("single", r"\p{N}"), ("triple", r"\p{N}{1,3}"))
}
"""Where text is cut into words: the pattern published with GPT-4's encoding, by the length of numbers."""


def train_bpe(
    *,
    texts: Iterable[str],
    out: Path,
    vocab_size: int,
    digits: str,
    min_frequency: int,
    train_bytes: int | None,
    chat_template: str | None,
) -> None:
    """Train byte-level BPE (Sennrich et al. 2016, on bytes as in GPT-2) and write its folder.

    Texts are streamed; memory grows with the number of distinct words. The same texts give the same file.

    Args:
        texts: Training texts.
        out: The folder to fill.
        vocab_size: Tokens at most, the special ones included.
        digits: ``single`` or ``triple``: the length at which numbers are cut.
        min_frequency: Occurrences below which a pair is not merged.
        train_bytes: Bytes of text to read at most.
        chat_template: A Jinja file in place of ChatML.
    """
    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(models.BPE())
    _set_byte_level(tokenizer, WORDS[digits])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(BYTE_TO_CHAR.values()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first_bytes(texts, train_bytes), trainer)
    _start_with(tokenizer, DOCUMENT_END)
    write_folder(out, json.loads(tokenizer.to_str()), own_config(), chat_template)


def make_bytes(*, out: Path, chat_template: str | None) -> None:
    """Write a tokenizer whose token ``b`` is the byte ``b``, followed by the special tokens."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    special = {token: 256 + k for k, token in enumerate(SPECIAL_TOKENS)}
    write_folder(out, byte_level(ranks, [], special, WORDS["single"]), own_config(), chat_template)


def byte_level(
    ranks: Mapping[bytes, int],
    merges: list[tuple[bytes, bytes]],
    special: Mapping[str, int],
    pattern: str,
    start: str = DOCUMENT_END,
) -> dict[str, Any]:
    """``tokenizer.json`` of a byte-level BPE given by its ranks.

    Args:
        ranks: Id of each byte string.
        merges: Pairs in the order in which they are merged.
        special: Id of each special token.
        pattern: Where text is cut into words.
        start: The special token that goes before a text.
    """
    from tokenizers import AddedToken, Tokenizer, models

    vocab = {to_chars(token): rank for token, rank in ranks.items()} | dict(special)
    pairs = [(to_chars(a), to_chars(b)) for a, b in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=True))
    _set_byte_level(tokenizer, pattern)
    tokens = sorted(special, key=special.__getitem__)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
    _start_with(tokenizer, start)
    return json.loads(tokenizer.to_str())


def _set_byte_level(tokenizer: Any, pattern: str) -> None:
    from tokenizers import Regex, decoders, pre_tokenizers

    words = pre_tokenizers.Split(Regex(pattern), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()


def _start_with(tokenizer: Any, token: str) -> None:
    """Let a reader that asks for special tokens get ``token`` before the text."""
    from tokenizers import processors

    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A {token} $B",
        special_tokens=[(token, tokenizer.token_to_id(token))],
    )


def _first_bytes(texts: Iterable[str], limit: int | None) -> Iterator[str]:
    read = 0
    for text in texts:
        if limit is not None and read >= limit:
            return
        text, _ = well_formed(text)
        read += len(text.encode())
        yield text
