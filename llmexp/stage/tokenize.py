"""Stage ``tokenize``: a corpus becomes token shards."""

from __future__ import annotations

from typing import Any

from llmexp.corpus.records import SPLITS
from llmexp.data.tokenize import tokenize
from llmexp.stage.config import Tokenize
from llmexp.stage.context import Context


def run(spec: Tokenize, context: Context) -> dict[str, Any]:
    """Encode both splits into ``context.out``."""
    summary = tokenize(
        context.path("corpus"),
        context.path("tokenizer"),
        context.out,
        max_unusable=spec.max_unusable,
        workers=spec.workers,
        progress=context.progress,
        should_stop=context.should_stop,
    )
    for split in SPLITS:
        for fault, count in summary[split]["unusable"].items():
            context.progress.line(f"  {split}: {count:,} left out: {fault}")
    return summary
