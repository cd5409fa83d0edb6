"""Stage ``collect``: a source becomes a corpus, split into train and held-out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmexp.corpus.collect import collect
from llmexp.stage.config import Collect
from llmexp.stage.context import Context

NAMED = 5
"""Bad files, and bad records, that are told by name."""


def run(spec: Collect, context: Context) -> dict[str, Any]:
    """Read the source into ``context.out``; what could not be read is told."""
    summary = collect(spec.data, context.out, progress=context.progress, should_stop=context.should_stop)
    for line in _told(summary):
        context.progress.line(line)
    return summary


def _told(summary: dict[str, Any]) -> Iterator[str]:
    """One line for the bad files and one for the bad records, the first of each by name."""
    for what, number, bad in (
        ("file", summary.get("n_bad_files", 0), summary.get("bad_files", [])),
        ("record", summary.get("n_bad_records", 0), summary.get("bad_records", [])),
    ):
        if number:
            named = "; ".join(f"{one['file']}: {one['problem']}" for one in bad[:NAMED])
            more = f"; and {number - NAMED} more" if number > NAMED else ""
            plural = "s" if number > 1 else ""
            yield f"  {number} bad {what}{plural} left out: {named}{more} (stats.json lists them)"
