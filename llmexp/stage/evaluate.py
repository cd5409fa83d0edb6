"""Stage ``evaluate``: models side by side on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmexp.corpus.records import read_records
from llmexp.evaluate.result import summary
from llmexp.evaluate.run import evaluate
from llmexp.stage.config import Evaluate
from llmexp.stage.context import Context


def run(spec: Evaluate, context: Context) -> dict[str, Any]:
    """Measure the models and write ``evaluation.json`` into ``context.out``."""
    prompts = context.optional_path("prompts")
    result = evaluate(
        models=context.paths("models"),
        spec=spec.evaluation,
        out=context.out,
        shards=context.optional_path("shards"),
        chats=context.optional_path("chats"),
        problems=_with_answers(prompts, context) if prompts else [],
        seed=spec.seed,
        progress=context.progress,
        tracker=context.tracker,
        should_stop=context.should_stop,
    )
    return summary(result)


def _with_answers(prompts: Path, context: Context) -> list[dict[str, Any]]:
    """The held-out prompts that can be marked; says how many cannot."""
    records = list(read_records(prompts, "heldout"))
    answered = [record for record in records if record.get("answer") is not None]
    if len(answered) < len(records):
        left = len(records) - len(answered)
        context.progress.line(f"  {left} of {len(records)} held-out prompts have no answer: not marked")
    return answered
