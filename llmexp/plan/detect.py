"""What ``hardware=auto`` and ``hardware=cpu`` mean on this machine. Imports torch only to look for a GPU."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import llmexp
from llmexp.config.spec import settings
from llmexp.plan.config import DeviceKind, HardwareSpec
from llmexp.store.machine import cores, memory

_FMA_BOTH = 2
"""A fused multiply-add is two operations."""

_ZEN5 = 26
"""The CPU family of AMD's Zen 5."""


def detected(hardware: HardwareSpec) -> HardwareSpec:
    """``hardware`` with each null filled in from this machine, where its kind says to look."""
    if hardware.kind not in (DeviceKind.auto, DeviceKind.cpu):
        return hardware
    found = (_gpu() if hardware.kind is DeviceKind.auto else None) or _cpu()
    values = {f.name: getattr(hardware, f.name) for f in settings(hardware) if f.name != "kind"}
    given = {name: value for name, value in values.items() if value not in (None, [])}
    return dataclasses.replace(found, **given)


def of_one_rank(hardware: HardwareSpec, ranks: int, *, on_cpu: bool) -> HardwareSpec:
    """What one of ``ranks`` computes on, found as :func:`detected` finds it.

    On a CPU that is an equal part, since every launcher starts the ranks on one host. ``on_cpu``:
    the run is told to stay on the CPU, whatever GPU ``hardware=auto`` would find.
    """
    if on_cpu and hardware.kind is DeviceKind.auto:
        hardware = dataclasses.replace(hardware, kind=DeviceKind.cpu)
    found = detected(hardware)
    if found.kind is not DeviceKind.cpu:
        return found
    return dataclasses.replace(
        found,
        peak_flops_fp32=found.peak_flops_fp32 and found.peak_flops_fp32 / ranks,
        peak_flops_bf16=found.peak_flops_bf16 and found.peak_flops_bf16 / ranks,
        memory_bytes=found.memory_bytes and found.memory_bytes // ranks,
        memory_bandwidth=found.memory_bandwidth and found.memory_bandwidth / ranks,
    )


@functools.cache
def known_devices() -> dict[str, HardwareSpec]:
    """The hardware options that ship with llmexp, by name."""
    import yaml

    package = Path(llmexp.__file__).parent
    conf = next(path for path in (package / "_conf", package.parent / "conf") if path.is_dir())
    known = {}
    for file in sorted((conf / "hardware").glob("*.yaml")):
        values: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        values.pop("_target_")
        known[file.stem] = HardwareSpec(**values | {"kind": DeviceKind[values["kind"]]})
    return known


@functools.cache
def _gpu() -> HardwareSpec | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    kind = DeviceKind.rocm if torch.version.hip else DeviceKind.cuda
    for known in known_devices().values():
        if properties.name in known.device_names:
            return dataclasses.replace(known, memory_bytes=properties.total_memory)
    return HardwareSpec(kind=kind, device_names=[properties.name], memory_bytes=properties.total_memory)


@functools.cache
def _cpu() -> HardwareSpec:
    """Peaks are cores × clock × operations a cycle, so they are what the data sheet would say.

    Operations a cycle of one core, fp32: two 256-bit units with AVX2, two 512-bit units with AVX-512
    on Intel and from AMD's Zen 5 on (Zen 4 runs those on its 256-bit units), else two 128-bit units. bf16 is
    twice that with AVX512-BF16, 16 times with AMX, as fast with AVX-512 alone. Without that
    torch multiplies bf16 in software, so slowly that no peak says anything.
    """
    info = _cpu_info()
    flags = set(info.get("flags", "").split())
    clock = float(info.get("cpu MHz", 0.0)) * 1e6
    fp32 = cores() * clock * fp32_lanes(info) * 2 * _FMA_BOTH or None
    faster = 16 if "amx_bf16" in flags else 2 if "avx512_bf16" in flags else 1
    return HardwareSpec(
        kind=DeviceKind.cpu,
        device_names=[info.get("model name", "CPU")],
        peak_flops_fp32=fp32,
        peak_flops_bf16=fp32 and fp32 * faster if multiplies_bf16() else None,
        memory_bytes=memory(),
    )


def fp32_lanes(info: dict[str, str]) -> int:
    """fp32 numbers that one instruction multiplies at full rate; ``info`` has the fields of /proc/cpuinfo."""
    flags, family = set(info.get("flags", "").split()), info.get("cpu family", "")
    zen5 = info.get("vendor_id") == "AuthenticAMD" and family.isdecimal() and int(family) >= _ZEN5
    if "avx512f" in flags and (info.get("vendor_id") == "GenuineIntel" or zen5):
        return 16
    return 8 if "avx2" in flags else 4


def multiplies_bf16() -> bool:
    """Whether torch has bf16 products for this CPU's instructions; true where the CPU does not say."""
    info = _cpu_info()
    flags = set(info.get("flags", info.get("Features", "")).split())
    return not flags or bool(flags & {"avx512bw", "avx_ne_convert", "bf16"})


def _cpu_info() -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo; empty where there is no such file."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return {}
    first = file.read_text().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
