"""Stage ``pretrain``: next-token prediction from nothing, or from another model."""

from __future__ import annotations

import dataclasses
from typing import Any

from llmexp.stage.config import Pretrain
from llmexp.stage.context import Context
from llmexp.stage.training import train_on_shards
from llmexp.tokenizer.tokenizer import Tokenizer


def run(spec: Pretrain, context: Context) -> dict[str, Any]:
    """Train the model of ``spec`` on the shards."""
    tokenizer = context.path("tokenizer")
    model = spec.model.build(seed=spec.seed, tokenizer_vocab_size=Tokenizer.load(tokenizer).vocab_size)
    model_spec = dataclasses.replace(spec.model, vocab_size=model.head_weight.shape[0])
    return train_on_shards(spec, context, model=model, model_spec=model_spec, tokenizer=tokenizer)
