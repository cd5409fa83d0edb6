"""Stage ``sft``: conversations, with loss on the assistant's turns alone."""

from __future__ import annotations

from typing import Any

from llmexp.model.io import load
from llmexp.stage.config import Sft
from llmexp.stage.context import Context
from llmexp.stage.training import train_on_shards


def run(spec: Sft, context: Context) -> dict[str, Any]:
    """Train the given model on the conversations."""
    folder = context.path("model")
    model, model_spec = load(folder)
    return train_on_shards(spec, context, model=model, model_spec=model_spec, tokenizer=folder)
