"""System metrics: CPU, memory, disk, network, and GPUs where there are some."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


class System:
    """Samples of this host and of this process. Counters count from when this was made.

    Args:
        folder: a folder on the disk whose free space is told.
        prefix: put before each key (``system/`` or ``system/node1/``).
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._folder = folder
        self._prefix = prefix
        self._gpus = _gpus()
        self._disk = psutil.disk_io_counters()
        self._network = psutil.net_io_counters()
        psutil.cpu_percent()

    def sample(self) -> dict[str, float]:
        """One sample. Units are in the names; percentages are 0 to 100."""
        psutil = self._psutil
        memory = psutil.virtual_memory()
        values: dict[str, float] = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_percentage": memory.percent,
            "process_memory_rss_bytes": self._process.memory_info().rss,
            "disk_free_bytes": psutil.disk_usage(str(self._folder)).free,
        }
        disk, network = psutil.disk_io_counters(), psutil.net_io_counters()
        if disk is not None and self._disk is not None:  # a container may hide its disks
            values["disk_read_bytes"] = disk.read_bytes - self._disk.read_bytes
            values["disk_write_bytes"] = disk.write_bytes - self._disk.write_bytes
        if network is not None and self._network is not None:
            values["network_receive_bytes"] = network.bytes_recv - self._network.bytes_recv
            values["network_transmit_bytes"] = network.bytes_sent - self._network.bytes_sent
        for i, gpu in enumerate(self._gpus):
            values |= {f"gpu_{i}_{key}": value for key, value in gpu.sample().items()}
        values |= _torch_memory()
        return {f"{self._prefix}{key}": float(value) for key, value in values.items()}


class NvmlGpu:
    """One GPU, asked through NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def sample(self) -> dict[str, float]:
        """Utilisation, memory and power; a value that this GPU does not report is left out."""
        nvml = self._nvml
        readings = {
            "utilization_percentage": lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu,
            "memory_usage_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(self._handle).used,
            "power_usage_watts": lambda: nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
        }
        values = {}
        for name, read in readings.items():
            try:
                values[name] = read()
            except nvml.NVMLError:
                continue
        return values


def _gpus() -> list[NvmlGpu]:
    """The GPUs that NVML knows; none without its Python module or without a driver."""
    if importlib.util.find_spec("pynvml") is None:
        return []
    import pynvml

    try:
        pynvml.nvmlInit()
        return [
            NvmlGpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())
        ]
    except pynvml.NVMLError:
        return []


def _torch_memory() -> dict[str, float]:
    """What torch holds on this process's GPU, when CUDA is in use."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # missing too while another thread still imports torch
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return {}
    return {
        "torch_memory_allocated_bytes": cuda.memory_allocated(),
        "torch_memory_peak_bytes": cuda.max_memory_allocated(),
    }
