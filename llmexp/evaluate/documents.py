"""The held-out documents that are scored: which, and what they cost without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmexp.data.shards import Shards
from llmexp.evaluate.baselines import UnigramEntropy, XzSize
from llmexp.evaluate.heldout import Document
from llmexp.evaluate.scores import NothingToScore, bits_per_byte

SPLIT = "heldout"


class HeldOut:
    """Documents of a held-out split, read one at a time from its shards."""

    def __init__(
        self, path: Path, *, max_documents: int | None = None, max_tokens: int | None = None
    ) -> None:
        """Choose documents of the shards at ``path``.

        Without a limit all of them; else whole documents in an order that is the same for every
        run and mixes the sources, until a limit is reached. They are read in the order of the files.

        Raises:
            NothingToScore: no document has a token that counts after another one.
        """
        self.path = path
        self.shards = Shards(path, SPLIT)
        first, lengths = self.shards.first_counted(), self.shards.lengths()
        candidates = np.flatnonzero(first < lengths)
        if len(candidates) == 0:
            raise NothingToScore(
                f"{path}: the split {SPLIT} has {len(self.shards)} documents and no token to score; "
                f"collect more text, or raise the held-out share (data.heldout)"
            )
        if max_documents is not None or max_tokens is not None:
            order = candidates[np.random.default_rng(0).permutation(len(candidates))][:max_documents]
            if max_tokens is not None:
                before = np.cumsum(lengths[order]) - lengths[order]
                order = order[before < max_tokens]
            candidates = np.sort(order)
        self.indices = candidates

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Document]:
        for index in self.indices.tolist():
            mask = self.shards.mask(index) if self.shards.header.chat else None
            yield Document(np.asarray(self.shards.tokens(index)), mask)

    def n_targets(self) -> int:
        """Tokens that are scored: those that count and have one before them."""
        return sum(len(targets(document)) for document in self)


def targets(document: Document) -> np.ndarray:
    """The ids that are scored in a document: (n,) integer. The first token has none before it."""
    ids = np.asarray(document.ids)[1:]
    return ids if document.mask is None else ids[np.asarray(document.mask, dtype=bool)[1:]]


@dataclass(frozen=True)
class TextFigures:
    """What the scored text is, and what it costs without a model."""

    n_documents: int
    n_tokens: int
    """Tokens scored."""
    n_bytes: int
    """UTF-8 bytes of the text that the scored tokens stand for."""
    unigram_bits_per_byte: float
    """Entropy of the scored tokens under their own frequencies."""
    xz_bits_per_byte: float
    """`xz -9` on the text of the documents."""


def measure_text(documents: HeldOut, tokenizer: Any) -> TextFigures:
    """Count the text of documents, and compress it.

    Bytes are those of the scored tokens, special ones standing for none: where documents begin with
    the start token, those are the bytes of the whole text.
    """
    unigram, xz = UnigramEntropy(), XzSize()
    n_tokens = n_bytes = 0
    for document in documents:
        scored = targets(document)
        unigram.observe(scored.tolist())
        xz.observe(tokenizer.decode(document.ids.tolist(), skip_special=True))
        n_tokens += len(scored)
        n_bytes += int(tokenizer.token_bytes[scored].sum())
    return TextFigures(
        n_documents=len(documents),
        n_tokens=n_tokens,
        n_bytes=n_bytes,
        unigram_bits_per_byte=bits_per_byte(unigram.nats(), n_bytes),
        xz_bits_per_byte=xz.bits_per_byte(),
    )
