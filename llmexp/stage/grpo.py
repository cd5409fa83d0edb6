"""Stage ``grpo``: completions sampled from the policy, scored by a rule, compared within their group."""

from __future__ import annotations

import copy
from typing import Any

from llmexp.corpus.records import read_records
from llmexp.data.config import LoaderSpec
from llmexp.model.decoder import Decoder
from llmexp.model.io import load
from llmexp.parallel.mesh import Mesh, device_kind
from llmexp.rollout.measure import greedy_texts, held_prompts, is_right
from llmexp.rollout.rewards.reward import Reward
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
    reward = spec.reward.build()
    objective = spec.objective.build(temperature=spec.rollout.temperature)
    mesh = spec.parallel.build(device=device_kind(spec.trainer.device.value))
    source = spec.rollout.build(
        model=model,
        tokenizer=tokenizer,
        records=list(read_records(prompts, "train")),
        reward=reward,
        objective=objective,
        seed=spec.seed,
        global_batch=spec.trainer.global_batch,
        total=mesh.sum,
        reference=copy.deepcopy(model).requires_grad_(False).eval() if objective.needs_reference else None,
        context_length=model_spec.max_seq_len,
        rank=context.rank,
        world=context.world,
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
        validate=_validate(spec, context, tokenizer, model_spec.max_seq_len, reward, mesh),
        seq_len=spec.rollout.max_new_tokens,
    )


def _validate(
    spec: Grpo, context: Context, tokenizer: Tokenizer, context_length: int, reward: Reward, mesh: Mesh
) -> Validate | None:
    """Mean reward of the likeliest answers to held-out prompts, and how many are right if known."""
    held = list(read_records(context.path("prompts"), "heldout"))[: spec.trainer.val_sequences]
    if not held:
        return None
    held_prompts(tokenizer, held, context_length)  # one that is too long is told now, not after hours
    answered = all(record.get("answer") is not None for record in held)
    mine = held[context.rank :: context.world]

    def measure(model: Decoder) -> dict[str, float]:
        """The figures of one policy, over all ranks."""
        pairs = []
        if mine:
            new = spec.rollout.max_new_tokens
            texts, _ = greedy_texts(model, tokenizer, mine, max_new_tokens=new, context_length=context_length)
            pairs = list(zip(mine, texts, strict=True))
        rewards, right = mesh.sum(
            [
                sum(reward(record, text) for record, text in pairs),
                float(sum(is_right(record, text) for record, text in pairs)) if answered else 0.0,
            ]
        )
        figures = {"val/reward": rewards / len(held)}
        return figures | {"val/exact_match": right / len(held)} if answered else figures

    return measure
