"""Stage ``tokenize``: a corpus becomes token shards."""

from __future__ import annotations

from typing import Any

from llmexp.data.tokenize import tokenize
from llmexp.stage.config import Tokenize
from llmexp.stage.context import Context


def run(spec: Tokenize, context: Context) -> dict[str, Any]:
    """Encode both splits into ``context.out``."""
    return tokenize(
        context.path("corpus"),
        context.path("tokenizer"),
        context.out,
        workers=spec.workers,
        progress=context.progress,
        should_stop=context.should_stop,
    )
