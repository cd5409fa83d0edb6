"""The work of the stage that makes a tokenizer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.tokenizer.config import TokenizerSpec
from llmexp.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llmexp.track.progress import Progress

MEASURED_BYTES = 8 << 20
"""Held-out text on which compression is measured, at most."""


def train_tokenizer(
    spec: TokenizerSpec, corpus_path: Path | None, out: Path, progress: Progress | None = None
) -> dict[str, Any]:
    """Make the tokenizer that ``spec`` describes.

    Args:
        spec: A tokenizer's spec.
        corpus_path: A corpus, whose training split alone is learned from; None where nothing is.
        out: The empty folder to fill.
        progress: Where to show how far it is.

    Returns:
        Size, engine, and bytes a token on held-out text (on training text where nothing is held out).

    Raises:
        ValueError: the spec is one that learns, and there is no corpus or no text in it.
    """
    if spec.trained:
        if corpus_path is None:
            raise ValueError(f"{type(spec).__name__} is learned from a corpus, and none was given")
        spec.build(texts=_counted(texts_of(corpus_path, "train"), progress), out=out)
    else:
        spec.build(out=out)
    tokenizer = Tokenizer.load(out)
    summary: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "engine": tokenizer.engine,
        "engine_reason": tokenizer.engine_reason,
    }
    return summary if corpus_path is None else summary | _compression(tokenizer, corpus_path)


def texts_of(corpus_path: Path, split: str) -> Iterator[str]:
    """The texts of a corpus's split: of a conversation, each message's content."""
    from llmexp.corpus.records import read_records

    for record in read_records(corpus_path, split):
        if isinstance(record.get("text"), str):
            yield record["text"]
        for message in record.get("messages") or []:
            if isinstance(message.get("content"), str):
                yield message["content"]


def _compression(tokenizer: Tokenizer, corpus_path: Path) -> dict[str, Any]:
    for split in ("heldout", "train"):
        n_bytes = n_tokens = 0
        for text in texts_of(corpus_path, split):
            n_bytes += len(text.encode("utf-8", "replace"))
            n_tokens += len(tokenizer.encode_array(text))
            if n_bytes >= MEASURED_BYTES:
                break
        if n_tokens:
            return {"bytes_per_token": n_bytes / n_tokens, "measured_on": split}
    return {}


def _counted(texts: Iterator[str], progress: Progress | None) -> Iterator[str]:
    """``texts``, shown as they are read; an error where there are none."""
    first = next(texts, None)
    if first is None:
        raise ValueError("the corpus's training split holds no text to learn a tokenizer from")
    texts = itertools.chain([first], texts)
    if progress is None:
        yield from texts
        return
    with progress.task("reading text for the tokenizer", total=None, unit="documents") as task:
        for text in texts:
            task.advance(1)
            yield text
