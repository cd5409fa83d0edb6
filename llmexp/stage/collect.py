"""Stage ``collect``: a source becomes a corpus, split into train and held-out."""

from __future__ import annotations

from typing import Any

from llmexp.corpus.collect import collect
from llmexp.stage.config import Collect
from llmexp.stage.context import Context


def run(spec: Collect, context: Context) -> dict[str, Any]:
    """Read the source into ``context.out``."""
    return collect(spec.data, context.out, progress=context.progress, should_stop=context.should_stop)
