"""Stage ``grpo``: completions sampled from the policy, scored by a rule, compared within their group."""

from __future__ import annotations

import copy
from typing import Any

from llmexp.corpus.records import read_records
from llmexp.data.config import LoaderSpec
from llmexp.model.decoder import Decoder
from llmexp.model.io import load
from llmexp.parallel.mesh import device_kind
from llmexp.rollout.measure import exact_match
from llmexp.stage.config import Grpo
from llmexp.stage.context import Context
from llmexp.stage.training import micro_batch, train
from llmexp.tokenizer.tokenizer import Tokenizer
from llmexp.train.run import Validate


def run(spec: Grpo, context: Context) -> dict[str, Any]:
    """Train the given model as a policy on the prompts."""
    folder, prompts = context.path("model"), context.path("prompts")
    model, model_spec = load(folder)
    tokenizer = Tokenizer.load(folder)
    objective = spec.objective.build(temperature=spec.rollout.temperature)
    mesh = spec.parallel.build(device=device_kind(spec.trainer.device.value))
    source = spec.rollout.build(
        model=model,
        tokenizer=tokenizer,
        records=list(read_records(prompts, "train")),
        reward=spec.reward.build(),
        objective=objective,
        seed=spec.seed,
        global_batch=spec.trainer.global_batch,
        total=mesh.sum,
        reference=copy.deepcopy(model).requires_grad_(False).eval() if objective.needs_reference else None,
        context_length=model_spec.max_seq_len,
        rank=context.rank,
        world=context.world,
        report=context.tracker.metrics,
    )
    source.micro_batch = micro_batch(spec, context, model_spec, LoaderSpec(seq_len=source.longest))
    return train(
        spec,
        context,
        model=model,
        model_spec=model_spec,
        tokenizer=folder,
        objective=objective,
        source=source,
        validate=_validate(spec, tokenizer, list(read_records(prompts, "heldout")), model_spec.max_seq_len),
        seq_len=spec.rollout.max_new_tokens,
    )


def _validate(
    spec: Grpo, tokenizer: Tokenizer, records: list[dict[str, Any]], context_length: int
) -> Validate | None:
    """Share of held-out problems answered right, greedily."""
    if not records:
        return None
    held = records[: spec.trainer.val_sequences]

    def measure(model: Decoder) -> dict[str, float]:
        found = exact_match(
            model, tokenizer, held, max_new_tokens=spec.rollout.max_new_tokens, context_length=context_length
        )
        return {"val/exact_match": found["exact_match"], "val/loss": 1.0 - found["exact_match"]}

    return measure
