"""Stage ``evaluate``: models side by side on held-out data."""

from __future__ import annotations

from typing import Any

from llmexp.corpus.records import read_records
from llmexp.evaluate.result import summary
from llmexp.evaluate.run import evaluate
from llmexp.stage.config import Evaluate
from llmexp.stage.context import Context


def run(spec: Evaluate, context: Context) -> dict[str, Any]:
    """Measure the models and write ``evaluation.json`` into ``context.out``."""
    models = context.inputs["models"]
    if not isinstance(models, dict):
        raise TypeError("'models' holds several inputs")
    prompts = context.optional_path("prompts")
    result = evaluate(
        models={name: model.path for name, model in models.items()},
        spec=spec.evaluation,
        out=context.out,
        shards=context.optional_path("shards"),
        chats=context.optional_path("chats"),
        problems=list(read_records(prompts, "heldout")) if prompts else (),
        seed=spec.seed,
        progress=context.progress,
        tracker=context.tracker,
        should_stop=context.should_stop,
    )
    return summary(result)
