"""The mesh of processes that train together, made from what their launcher put into the environment.

Whoever starts the processes (a launcher, torchrun, SLURM) sets RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT before this is called. Nothing here starts a process.
"""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

STARTED_BY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What the launcher of more than one process sets."""


class MeshMistake(Exception):
    """The mesh and the processes that were started do not fit together."""

    exit_code = 2


@dataclass(frozen=True)
class Mesh:
    """This process's place among those that train together, and how to speak with them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Processes on this node."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    control: dist.ProcessGroup | None = None
    """A gloo group of its own for small decisions: it cannot get mixed up with gradients under way."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes journals, checkpoints and artifacts."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Each of ``values`` (float64) summed over the ranks, in the same order on every rank."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def max(self, values: list[float]) -> list[float]:
        """The largest of each of ``values`` over the ranks; NaN does not survive this, so send flags."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def from_each(self, value: object) -> list[Any]:
        """Every rank's plain ``value`` (strings, numbers, lists and dicts of them), in the order of ranks."""
        text = json.dumps(value).encode()
        if self.size == 1:
            return [json.loads(text)]
        lengths = [int(n) for n in self.sum([len(text) * float(r == self.rank) for r in range(self.size)])]
        own = torch.zeros(max(lengths), dtype=torch.uint8)
        own[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        all_texts = [torch.empty_like(own) for _ in lengths]
        dist.all_gather(all_texts, own, group=self.control)
        return [json.loads(t[:n].numpy().tobytes()) for t, n in zip(all_texts, lengths, strict=True)]

    def from_first(self, value: object) -> Any:
        """Rank 0's plain ``value`` on every rank."""
        return self.from_each(value if self.is_first else None)[0]

    def wait(self) -> None:
        """Return when every rank has come here."""
        if self.size > 1:
            dist.barrier(group=self.control)

    def _reduce(self, values: list[float], op: dist.ReduceOp.RedOpType) -> list[float]:
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=op, group=self.control)
        return tensor.tolist()


def connect(*, dp_replicate: int, device: str = "cpu", timeout_s: float = 1800.0) -> Mesh:
    """Join the other processes and return this one's place. Calling it again is harmless.

    ``device`` is a kind (``cpu``, ``cuda``, ``mps``); with several ``cuda`` ranks on a node each
    takes the one of its local rank. ``timeout_s``: seconds after which a silent rank is an error.

    Raises:
        MeshMistake: the axes' product is not the number of processes started, or one of the
            variables that tell them apart is not set.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    size = world if dp_replicate == -1 else dp_replicate
    if size != world:
        raise MeshMistake(
            f"the mesh is dp_replicate={dp_replicate}, {size} processes in all, but {world} were started: "
            f"set parallel.dp_replicate={world} or -1, or start {size}"
        )
    if size == 1:
        return Mesh(device=_device(device, 0))
    unset = [name for name in STARTED_BY if name not in os.environ]
    if unset:
        raise MeshMistake(
            f"{world} processes, but {', '.join(unset)} not set: use launcher=processes or torchrun"
        )
    local_rank = int(os.environ["LOCAL_RANK"])
    timeout = datetime.timedelta(seconds=timeout_s)
    if not dist.is_initialized():
        dist.init_process_group(backend="nccl" if device == "cuda" else "gloo", timeout=timeout)
    return Mesh(
        rank=dist.get_rank(),
        size=size,
        local_rank=local_rank,
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", str(size))),
        device=_device(device, local_rank),
        control=_control_group(timeout),
    )


def device_kind(wanted: str) -> str:
    """The kind of device that ``wanted`` (auto, cpu, cuda, mps) means here; auto: a GPU if there is one.

    Raises:
        MeshMistake: there is no such device.
    """
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        return next(kind for kind in ("cuda", "mps", "cpu") if there[kind])
    if not there[wanted]:
        have = ", ".join(kind for kind, found in there.items() if found)
        raise MeshMistake(f"trainer.device={wanted}, but torch finds none on this machine; it finds: {have}")
    return wanted


_CONTROL: list[dist.ProcessGroup] = []
"""The control group of this process's default group: one a process, as the default group is."""


def _control_group(timeout: datetime.timedelta) -> dist.ProcessGroup:
    if not _CONTROL:
        _CONTROL.append(dist.new_group(backend="gloo", timeout=timeout))
    return _CONTROL[0]


def _device(kind: str, local_rank: int) -> torch.device:
    return torch.device("cuda", local_rank) if kind == "cuda" else torch.device(kind)
