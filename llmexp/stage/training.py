"""What all training stages share: the loop's call, held-out figures, and the model's folder."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from llmexp.config.mistakes import UserError
from llmexp.data.batch import Batch
from llmexp.data.config import LoaderSpec
from llmexp.data.shards import Shards
from llmexp.data.source import heldout_batches
from llmexp.model.config import ModelSpec, flops_per_token
from llmexp.model.decoder import Decoder
from llmexp.model.io import save
from llmexp.objective.base import Objective
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.mesh import device_kind
from llmexp.plan.detect import multiplies_bf16, of_one_rank
from llmexp.stage.config import Pretrain, Sft, TrainingStage
from llmexp.stage.context import Context
from llmexp.tokenizer.folder import copy_tokenizer
from llmexp.track.params import jsonable
from llmexp.train.config import Device, Precision
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
    """Train, write the model's folder on rank 0, and return the summary.

    Raises:
        UserError: training is to end by held-out figures, and there are none.
    """
    if spec.trainer.stop_when is not None and validate is None:
        raise UserError(
            f"{context.name}.trainer.stop_when: is {spec.trainer.stop_when.value}, and nothing is held out "
            "to measure it on: hold some of the data out (data.heldout=0.05), or set trainer.stop_when=null"
        )
    model.train()
    on_cpu = device_kind(spec.trainer.device.value) == "cpu"
    if on_cpu and spec.trainer.precision is Precision.bf16 and not multiplies_bf16():
        context.progress.line(
            "  this CPU multiplies bf16 in software, far slower than fp32: set trainer.precision=fp32"
        )
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
    return jsonable(summary)


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
    trainer = spec.trainer
    device = of_one_rank(context.hardware, context.world, on_cpu=trainer.device is Device.cpu)
    peak = device.peak_flops(trainer.precision.value)
    if peak is None:
        return None
    return Compute(flops_per_token=flops_per_token(model_spec, seq_len), peak_flops=peak * context.world)


def train_on_shards(
    spec: Pretrain | Sft, context: Context, *, model: Decoder, model_spec: ModelSpec, tokenizer: Path
) -> dict[str, Any]:
    """Train on the tokens of ``context``'s shards that count, with their held-out splits beside."""
    shards, seq_len = list(context.paths("shards").values()), spec.loader.seq_len
    micro = micro_batch(spec, context, model_spec, spec.loader)
    mesh = spec.parallel.build(device=device_kind(spec.trainer.device.value))
    source = spec.loader.build(
        shards=[Shards(path, "train") for path in shards],
        seed=spec.seed,
        global_batch=spec.trainer.global_batch,
        micro_batch=micro,
        rank=context.rank,
        world=context.world,
    )
    held = [split for path in shards if len(split := Shards(path, "heldout"))]
    held_batches = functools.partial(
        heldout_batches,
        seq_len=seq_len,
        batch_size=micro,
        max_rows=spec.trainer.val_sequences,
        rank=context.rank,
        world=context.world,
    )
    try:
        return train(
            spec,
            context,
            model=model,
            model_spec=model_spec,
            tokenizer=tokenizer,
            objective=CrossEntropy(),
            source=source,
            validate=heldout_loss(held, held_batches, mesh.sum) if held else None,
            seq_len=seq_len,
        )
    finally:
        source.close()


def heldout_loss(
    splits: Sequence[Shards],
    batches: Callable[[Shards], Iterator[Batch]],
    total: Callable[[list[float]], list[float]],
) -> Validate:
    """From a model to its held-out loss, and bits a byte of what the counted tokens stand for.

    The loss is in nats a counted token, over all ``splits`` and, with ``total``, over all ranks.
    """
    objective = CrossEntropy()
    counted = sum(split.header.n_counted for split in splits)
    n_bytes = sum(split.header.n_bytes for split in splits)

    @torch.no_grad()
    def measure(model: Decoder) -> dict[str, float]:
        """The figures of one model, in evaluation mode."""
        nats, count = 0.0, 0.0
        for split in splits:
            for batch in batches(split):
                held = batch.to(model.head_weight.device)
                nats += float(objective(model, held).total)
                count += float(objective.count(held))
        nats, count = total([nats, count])
        loss = nats / count if count else math.nan
        figures = {"val/loss": loss}
        if n_bytes:
            figures["val/bits_per_byte"] = loss / math.log(2) * counted / n_bytes
        return figures

    return measure
