"""The plan of a training composition: memory, time and cost from its specs. Imports no torch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from llmexp.data.config import LoaderSpec
from llmexp.model.config import ModelSpec, flops_per_token, n_active_params, n_params
from llmexp.parallel.config import ParallelSpec
from llmexp.plan.config import DeviceKind, HardwareSpec
from llmexp.plan.detect import multiplies_bf16, of_one_rank
from llmexp.plan.memory import (
    COMPUTE,
    MASTER,
    adamw_bytes,
    block_matrices,
    memory_parts,
    muon_bytes,
)
from llmexp.train.config import AdamWSpec, Device, MuonSpec, OptimizerSpec, Recompute, TrainerSpec

USABLE = 0.9
"""Share of a device's memory that a plan gives out; the rest is for the runtime and fragmentation."""


@dataclasses.dataclass
class Plan:
    """What a run is predicted to need. None is unknown, for the reason that ``notes`` give."""

    n_params: int
    n_active_params: int
    flops_per_token: int
    memory_bytes: dict[str, Any]
    """``peak`` of one device, and its ``parts``."""
    memory_limit_bytes: int | None
    fits: bool | None
    devices: int
    micro_batch: int
    """Sequences in one forward pass."""
    steps: int | None
    step_seconds: float | None
    tokens_per_second_per_device: float | None
    mfu: float | None
    device_hours: float | None
    cost: dict[str, Any]
    """``amount`` and ``currency``."""
    notes: list[str]
    """What was assumed and what is left out."""

    def as_json(self) -> dict[str, Any]:
        """The plan as plain data with stable keys."""
        return dataclasses.asdict(self)


def plan(
    model: ModelSpec,
    *,
    loader: LoaderSpec,
    trainer: TrainerSpec,
    optimizer: OptimizerSpec,
    parallel: ParallelSpec,
    hardware: HardwareSpec,
    world_size: int | None = None,
    tokenizer_vocab_size: int | None = None,
) -> Plan:
    """Predict one training run.

    A null vocabulary takes ``tokenizer_vocab_size``. ``hardware`` is looked up on this machine
    where it says auto or cpu. A null ``trainer.micro_batch`` becomes the largest one that fits.

    Raises:
        ValueError: no vocabulary is known.
    """
    if tokenizer_vocab_size is not None:
        model = model.with_vocabulary(tokenizer_vocab_size)
    devices = parallel.size(world_size)
    hardware = of_one_rank(hardware, devices, on_cpu=trainer.device is Device.cpu)
    local = math.ceil(trainer.global_batch / devices)
    limit = int(USABLE * hardware.memory_bytes) if hardware.memory_bytes else None
    micro = trainer.micro_batch or _largest(model, loader, trainer, optimizer, local, limit)
    parts = _parts(model, loader, trainer, optimizer, micro)
    peak = sum(parts.values())
    step = _step_seconds(model, loader, trainer, optimizer, hardware, local)
    steps = trainer.steps(loader.seq_len)
    hours = _device_hours(trainer, devices, steps, step)
    price = hardware.price_per_device_hour
    flops = flops_per_token(model, loader.seq_len)
    rate = local * loader.seq_len / step if step else None
    peak_flops = hardware.peak_flops(trainer.precision.value)
    fits = peak <= limit if limit else None
    notes = _notes(trainer, optimizer, hardware, devices)
    if fits is False:
        notes.append("memory: it does not fit; time and cost are those of a device with room for it")
    return Plan(
        n_params=n_params(model),
        n_active_params=n_active_params(model),
        flops_per_token=flops,
        memory_bytes={"peak": peak, "parts": parts},
        memory_limit_bytes=limit,
        fits=fits,
        devices=devices,
        micro_batch=micro,
        steps=steps,
        step_seconds=step,
        tokens_per_second_per_device=rate,
        mfu=rate * flops / peak_flops if rate and peak_flops else None,
        device_hours=hours,
        cost={
            "amount": hours * price if hours is not None and price is not None else None,
            "currency": hardware.currency,
        },
        notes=notes,
    )


def _parts(
    model: ModelSpec, loader: LoaderSpec, trainer: TrainerSpec, optimizer: OptimizerSpec, micro: int
) -> dict[str, int]:
    return memory_parts(
        model,
        tokens=micro * loader.seq_len,
        seq_len=loader.seq_len,
        precision=trainer.precision.value,
        recompute=trainer.activation_checkpointing is Recompute.block,
        optimizer_bytes=muon_bytes(model) if isinstance(optimizer, MuonSpec) else adamw_bytes(model),
    )


def _largest(
    model: ModelSpec,
    loader: LoaderSpec,
    trainer: TrainerSpec,
    optimizer: OptimizerSpec,
    local: int,
    limit: int | None,
) -> int:
    """The largest divisor of a device's share whose memory fits; 1 when none does."""
    for micro in range(local, 1, -1):
        if local % micro == 0:
            needed = sum(_parts(model, loader, trainer, optimizer, micro).values())
            if limit is None or needed <= limit:
                return micro
    return 1


def _step_seconds(
    model: ModelSpec,
    loader: LoaderSpec,
    trainer: TrainerSpec,
    optimizer: OptimizerSpec,
    hardware: HardwareSpec,
    local: int,
) -> float | None:
    """Forward and backward pass at the assumed share of the peak, then the optimizer's own work."""
    peak = hardware.peak_flops(trainer.precision.value)
    if peak is None:
        return None
    rate = hardware.reached * peak
    computed = local * loader.seq_len * flops_per_token(model, loader.seq_len)
    if trainer.activation_checkpointing is Recompute.block:
        computed = computed * 4 // 3
    if isinstance(optimizer, MuonSpec):
        computed += muon_flops(model, optimizer.ns_steps)
    seconds = computed / rate
    if hardware.memory_bandwidth:
        # AdamW reads weight, gradient and two means and writes all but the gradient.
        seconds += 7 * MASTER * n_params(model) / hardware.memory_bandwidth
    return seconds


def muon_flops(model: ModelSpec, ns_steps: int) -> int:
    """Operations of one Muon step: each Newton-Schulz iteration on an m × n matrix, m ≤ n, is
    X Xᵀ, its square, and a product with X: 4 m² n + 2 m³."""
    sizes = [(min(shape), max(shape)) for shape in block_matrices(model)]
    return ns_steps * sum(4 * m * m * n + 2 * m**3 for m, n in sizes)


def _device_hours(
    trainer: TrainerSpec, devices: int, steps: int | None, step_seconds: float | None
) -> float | None:
    if trainer.max_seconds is not None:
        return devices * trainer.max_seconds / 3600
    if steps is None or step_seconds is None:
        return None
    return devices * steps * step_seconds / 3600


def _notes(trainer: TrainerSpec, optimizer: OptimizerSpec, hardware: HardwareSpec, devices: int) -> list[str]:
    precision = trainer.precision.value
    peak = hardware.peak_flops(precision)
    notes = []
    if precision == "bf16" and hardware.kind is DeviceKind.cpu and not multiplies_bf16():
        notes.append(
            "time: this CPU multiplies bf16 in software, far slower than fp32: trainer.precision=fp32"
        )
    elif peak is None:
        notes.append(f"time: the device's {precision} peak is unknown, so there is no estimate")
    else:
        notes.append(f"time: {hardware.reached:.0%} of {peak / 1e12:.4g} TFLOP/s {precision} is assumed")
    notes.append("memory: no dropout and no torch.compile; gradients held beside all activations")
    if precision not in COMPUTE:
        notes.append(f"memory: {precision} is counted like bf16")
    if not isinstance(optimizer, (AdamWSpec, MuonSpec)):
        notes.append(f"memory: {type(optimizer).__name__} is counted like AdamW")
    if hardware.kind is DeviceKind.cpu and devices > 1:
        notes.append(f"memory and time: {devices} ranks share their host")
    if devices > 1:
        notes.append("time: communication between devices is left out")
    if hardware.price_per_device_hour is None:
        notes.append("cost: set hardware.price_per_device_hour")
    return notes
