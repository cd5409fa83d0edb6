"""Stage ``pretrain``: next-token prediction from nothing, or from another model."""

from __future__ import annotations

import dataclasses
from typing import Any

from llmexp.data.shards import Shards
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.stage.config import Pretrain
from llmexp.stage.context import Context
from llmexp.stage.training import heldout_loss, micro_batch, train
from llmexp.tokenizer.tokenizer import Tokenizer


def run(spec: Pretrain, context: Context) -> dict[str, Any]:
    """Train the model of ``spec`` on the shards."""
    shards, tokenizer = context.path("shards"), context.path("tokenizer")
    model = spec.model.build(seed=spec.seed, tokenizer_vocab_size=Tokenizer.load(tokenizer).vocab_size)
    model_spec = dataclasses.replace(spec.model, vocab_size=model.head_weight.shape[0])
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
            bytes_per_token=held.header.n_bytes / held.header.n_tokens,
        )
        if len(held)
        else None
    )
    return train(
        spec,
        context,
        model=model,
        model_spec=model_spec,
        tokenizer=tokenizer,
        objective=CrossEntropy(),
        source=source,
        validate=validate,
        seq_len=seq_len,
    )
