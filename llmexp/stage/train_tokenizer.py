"""Stage ``train_tokenizer``: a tokenizer learned from the train split, or taken over from elsewhere."""

from __future__ import annotations

from typing import Any

from llmexp.stage.config import TrainTokenizer
from llmexp.stage.context import Context
from llmexp.tokenizer.train import train_tokenizer


def run(spec: TrainTokenizer, context: Context) -> dict[str, Any]:
    """Make the tokenizer's folder at ``context.out``."""
    summary = train_tokenizer(spec.tokenizer, context.optional_path("corpus"), context.out, context.progress)
    asked = getattr(spec.tokenizer, "vocab_size", None)
    if asked is not None and summary["vocab_size"] < asked:
        got = summary["vocab_size"]
        context.progress.line(
            f"  the text is too short for tokenizer.vocab_size={asked}: it gave {got} tokens"
        )
    return summary
