"""Stage ``sft``: conversations, with loss on the assistant's turns alone."""

from __future__ import annotations

from typing import Any

from llmexp.data.shards import Shards
from llmexp.model.io import load
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.stage.config import Sft
from llmexp.stage.context import Context
from llmexp.stage.training import heldout_loss, micro_batch, train


def run(spec: Sft, context: Context) -> dict[str, Any]:
    """Train the given model on the conversations."""
    folder, shards = context.path("model"), context.path("shards")
    model, model_spec = load(folder)
    micro = micro_batch(spec, context, model_spec, spec.loader)
    source = spec.loader.build(
        shards=Shards(shards, "train"),
        seed=spec.seed,
        global_batch=spec.trainer.global_batch,
        micro_batch=micro,
        rank=context.rank,
        world=context.world,
    )
    held = Shards(shards, "heldout")
    seq_len = spec.loader.seq_len
    validate = (
        heldout_loss(
            held,
            seq_len=seq_len,
            batch=micro,
            rows=spec.trainer.val_sequences,
        )
        if len(held)
        else None
    )
    return train(
        spec,
        context,
        model=model,
        model_spec=model_spec,
        tokenizer=folder,
        objective=CrossEntropy(),
        source=source,
        validate=validate,
        seq_len=seq_len,
    )
