"""The `evaluation` group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmexp.config.spec import Mistake, Spec, setting


@dataclass(kw_only=True)
class EvaluationSpec(Spec):
    """What is measured on each model, and on how much held-out text."""

    seq_len: int = setting(
        "Context length of held-out scoring: the one of training; a model's shorter context bounds it.",
        default=512,
        unit="tokens",
        ge=1,
    )
    overlap: int = setting(
        "Context repeated from the window before, in documents longer than the context; not scored twice.",
        default=0,
        unit="tokens",
        ge=0,
    )
    max_documents: int | None = setting(
        "At most so many held-out documents, from all sources; empty = all of them.", default=None, ge=1
    )
    max_tokens: int | None = setting(
        "At most about so many held-out tokens (whole documents); empty = all of them.",
        default=None,
        unit="tokens",
        ge=1,
    )
    micro_batch: int = setting(
        "Windows in one forward pass; changes the speed and the memory, never the figures.",
        default=8,
        unit="sequences",
        ge=1,
        result=False,
    )
    device: str = setting(
        "Where the models run.", default="auto", choices=("auto", "cpu", "cuda", "mps"), result=False
    )
    ece_bins: int = setting("Equal-width confidence bins of the calibration error.", default=15, ge=2)
    include_initial: bool = setting(
        "Also score the first model's architecture with its initial weights: the row before training.",
        default=True,
    )
    exact_match_problems: int = setting(
        "Held-out problems whose answer is checked; 0 = none.", default=200, ge=0
    )
    exact_match_max_new_tokens: int = setting(
        "Length of an answer at most (greedy).", default=32, unit="tokens", ge=1
    )
    samples: int = setting("Sample generations of each kind (free text, chat).", default=4, ge=0)
    sample_max_new_tokens: int = setting("Length of a sample at most.", default=64, unit="tokens", ge=1)
    sample_temperature: float = setting("Temperature of the samples; 0 = greedy.", default=0.7, ge=0.0)
    sample_prompts: list[str] = setting(
        "Beginnings of free text that every model continues.",
        default=["Return a list of", "This module", "def read_file(path):", "If the argument is"],
    )

    def check(self) -> Iterator[Mistake]:
        """The overlap leaves room for new tokens."""
        if self.overlap >= self.seq_len:
            yield Mistake(
                "overlap",
                f"an overlap of {self.overlap} leaves no new token in windows of {self.seq_len}",
                f"set it below seq_len, for example {self.seq_len // 2}",
            )
