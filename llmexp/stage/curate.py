"""Stage ``curate``: a corpus goes through the ordered steps; what is removed is kept with the reason."""

from __future__ import annotations

from typing import Any

from llmexp.corpus.curation.curate import curate
from llmexp.stage.config import Curate
from llmexp.stage.context import Context


def run(spec: Curate, context: Context) -> dict[str, Any]:
    """Curate the corpus into ``context.out``."""
    return curate(
        spec.curation,
        context.path("corpus"),
        context.out,
        progress=context.progress,
        should_stop=context.should_stop,
        workers=spec.workers,
    )
