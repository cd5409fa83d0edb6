"""The spec of a device, as plans and MFU need it. Imports no torch."""

from __future__ import annotations

import dataclasses
from enum import Enum

from llmexp.config.spec import Spec, setting


class DeviceKind(Enum):
    """How a device is found; ``auto`` is whatever this machine has."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    rocm = "rocm"
    tpu = "tpu"


@dataclasses.dataclass(kw_only=True)
class HardwareSpec(Spec):
    """One device: its peaks (dense, without sparsity), memory and price. Null is unknown."""

    kind: DeviceKind = setting(
        "Kind of device; auto and cpu fill in from this machine what is null.", result=False
    )
    device_names: list[str] = setting(
        "Names under which drivers report this device.", default=[], result=False
    )
    peak_flops_fp32: float | None = setting(
        "Peak of fp32 matrix products (no TF32).", default=None, gt=0, unit="FLOP/s", result=False
    )
    peak_flops_bf16: float | None = setting(
        "Peak of bf16 matrix products with fp32 accumulation.",
        default=None,
        gt=0,
        unit="FLOP/s",
        result=False,
    )
    peak_flops_fp8: float | None = setting(
        "Peak of fp8 matrix products.", default=None, gt=0, unit="FLOP/s", result=False
    )
    memory_bytes: int | None = setting(
        "Memory of one device.", default=None, gt=0, unit="bytes", result=False
    )
    memory_bandwidth: float | None = setting(
        "Peak bandwidth of that memory.", default=None, gt=0, unit="bytes/s", result=False
    )
    assumed_mfu: float | None = setting(
        "Share of the peak that forward and backward pass may reach; null: 0.35 on CPUs, 0.4 else.",
        default=None,
        gt=0,
        le=1,
        result=False,
    )
    price_per_device_hour: float | None = setting(
        "What an hour of one device costs.", default=None, ge=0, unit="currency", result=False
    )
    currency: str = setting("Of the price.", default="USD", result=False)

    @property
    def reached(self) -> float:
        """The assumed share of the peak, resolved."""
        if self.assumed_mfu is not None:
            return self.assumed_mfu
        return 0.35 if self.kind is DeviceKind.cpu else 0.4

    def peak_flops(self, precision: str) -> float | None:
        """Peak of one device in FLOP/s at ``precision`` (fp32, bf16, fp8); None when unknown."""
        peaks = {"fp32": self.peak_flops_fp32, "bf16": self.peak_flops_bf16, "fp8": self.peak_flops_fp8}
        if peaks[precision] is None and self.kind in (DeviceKind.auto, DeviceKind.cpu):
            from llmexp.plan.detect import detected

            found = detected(self)
            return {"fp32": found.peak_flops_fp32, "bf16": found.peak_flops_bf16}.get(precision)
        return peaks[precision]
