"""Spec of the loader: how token shards are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from llmexp.config.spec import Mistake, Spec, setting

PACKINGS = ("documents", "best_fit", "pad")
MIXTURE_BLOCK = 4096
"""A mixture repeats its proportions exactly in every so many samples."""


@dataclass(kw_only=True)
class LoaderSpec(Spec):
    """A view of token shards: length of a sample, packing, mixture."""

    builds: ClassVar[str] = "llmexp.data.source:CorpusSource"

    seq_len: int = setting("Length of a sample.", default=512, ge=2, unit="tokens")
    packing: str = setting(
        "documents: one after the other, cut every seq_len tokens; best_fit: whole documents, put where they "
        "leave least room; pad: one document a sample.",
        default="documents",
        choices=PACKINGS,
    )
    mixture: list[float] = setting(
        "Weight of each input of shards, in their order; empty: every sample once an epoch.",
        default=[],
        ge=0,
    )
    workers: int = setting(
        "Threads that read ahead; 0 reads when asked.", default=1, ge=0, le=64, result=False
    )

    def check(self) -> Iterator[Mistake]:
        """Weights are of a size that a block of the mixture can hold."""
        total = sum(self.mixture)
        if self.mixture and total <= 0:
            yield Mistake("mixture", "all weights are 0", "give at least one input a weight above 0")
        elif small := [w for w in self.mixture if 0 < w / total < 1 / MIXTURE_BLOCK]:
            yield Mistake(
                "mixture",
                f"the weight {small[0]} is less than 1/{MIXTURE_BLOCK} of all",
                "set it to 0, or raise it",
            )
