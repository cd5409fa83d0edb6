"""What all training stages share: the loop's call, held-out figures, and the model's folder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llmexp.data.config import LoaderSpec
from llmexp.data.shards import Shards
from llmexp.data.source import heldout_batches
from llmexp.model.config import ModelSpec, flops_per_token
from llmexp.model.decoder import Decoder
from llmexp.model.io import save
from llmexp.objective.base import Objective
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.stage.config import Pretrain, Sft, TrainingStage
from llmexp.stage.context import Context
from llmexp.tokenizer.folder import copy_tokenizer
from llmexp.train.fit import fit
from llmexp.train.run import Compute, Source, Validate


def train(
    spec: TrainingStage,
    context: Context,
    *,
    model: Decoder,
    model_spec: ModelSpec,
    tokenizer: Path,
    objective: Objective,
    source: Source,
    validate: Validate | None,
    seq_len: int,
) -> dict[str, Any]:
    """Train, write the model's folder on rank 0, and return the summary."""
    model.train()
    result = fit(
        model=model,
        objective=objective,
        source=source,
        trainer=spec.trainer,
        optimizer=spec.optimizer,
        scheduler=spec.scheduler,
        parallel=spec.parallel,
        seed=spec.seed,
        seq_len=seq_len,
        run_dir=context.run_dir,
        tracker=context.tracker,
        progress=context.progress,
        should_stop=context.should_stop,
        guard=context.guard,
        validate=validate,
        compute=_compute(spec, context, model_spec, seq_len),
        description=context.name,
    )
    if context.rank == 0:
        save(model, model_spec, context.out)
        copy_tokenizer(tokenizer, context.out)
    summary = dataclasses.asdict(result)
    summary["checkpoint"] = str(result.checkpoint) if result.checkpoint else None
    summary["n_params"] = sum(p.numel() for p in model.parameters())
    return {k: v if not isinstance(v, float) or math.isfinite(v) else str(v) for k, v in summary.items()}


def micro_batch(spec: TrainingStage, context: Context, model_spec: ModelSpec, loader: LoaderSpec) -> int:
    """Sequences in one forward pass: the given number, or the most that the device's memory holds."""
    from llmexp.plan.estimate import plan

    found = plan(
        model_spec,
        loader=loader,
        trainer=spec.trainer,
        optimizer=spec.optimizer,
        parallel=spec.parallel,
        hardware=context.hardware,
        world_size=context.world,
    )
    return found.micro_batch


def _compute(spec: TrainingStage, context: Context, model_spec: ModelSpec, seq_len: int) -> Compute | None:
    """What MFU is reckoned from; None where the device's peak is not known."""
    peak = context.hardware.peak_flops(spec.trainer.precision.value)
    if peak is None:
        return None
    return Compute(flops_per_token=flops_per_token(model_spec, seq_len), peak_flops=peak * context.world)


def train_on_shards(
    spec: Pretrain | Sft, context: Context, *, model: Decoder, model_spec: ModelSpec, tokenizer: Path
) -> dict[str, Any]:
    """Train on the tokens of ``context``'s shards that count, with their held-out split beside."""
    shards, seq_len = context.path("shards"), spec.loader.seq_len
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
    rows = spec.trainer.val_sequences
    return train(
        spec,
        context,
        model=model,
        model_spec=model_spec,
        tokenizer=tokenizer,
        objective=CrossEntropy(),
        source=source,
        validate=heldout_loss(held, seq_len=seq_len, batch=micro, rows=rows) if len(held) else None,
        seq_len=seq_len,
    )


def heldout_loss(
    shards: Shards, *, seq_len: int, batch: int, rows: int | None
) -> Callable[[Decoder], dict[str, float]]:
    """From a model to its held-out loss (nats a counted token), and bits a byte of what those stand for."""
    objective, header = CrossEntropy(), shards.header

    @torch.no_grad()
    def measure(model: Decoder) -> dict[str, float]:
        device = model.head_weight.device
        total, count = 0.0, 0.0
        for rows_of in heldout_batches(shards, seq_len=seq_len, batch_size=batch, max_rows=rows):
            held = rows_of.to(device)
            total += float(objective(model, held).total)
            count += float(objective.count(held))
        loss = total / count if count else math.nan
        figures = {"val/loss": loss}
        if header.n_bytes:
            figures["val/bits_per_byte"] = loss / math.log(2) * header.n_counted / header.n_bytes
        return figures

    return measure
