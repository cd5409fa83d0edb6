"""Summing gradients over replicas, overlapped with the backward pass, in an order that never changes.

The buckets of ``torch.nn.parallel.DistributedDataParallel`` (Li et al. 2020, arXiv 2006.15704) are
rebuilt after the first backward pass, in the order in which gradients happened to arrive. A
run that resumes would then sum its first step in other buckets than the run that went on, and
with more than two ranks the last bit of a sum depends on that. Here the buckets follow the
order of the parameters alone; and a sum, not a mean, is what a loss divided by the global
token count needs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

BUCKET_BYTES = 25 * 1024 * 1024
"""Gradients that travel together: large enough for bandwidth, small enough to start early."""


class GradientSum:
    """All-reduces the gradients of ``parameters`` while the last micro-batch's backward pass runs."""

    def __init__(self, parameters: Iterable[nn.Parameter], bucket_bytes: int = BUCKET_BYTES) -> None:
        self._buckets = _buckets([p for p in parameters if p.requires_grad], bucket_bytes)
        self._bucket_of = {p: i for i, bucket in enumerate(self._buckets) for p in bucket}
        self._waiting: list[int] = []
        self._launched: list[tuple[torch.Tensor, dist.Work]] = []
        self._armed = False
        self._hooks = [p.register_post_accumulate_grad_hook(self._arrived) for p in self._bucket_of]

    def arm(self) -> None:
        """Call before the last micro-batch's backward pass: its gradients are final as they arrive."""
        self._waiting = [len(bucket) for bucket in self._buckets]
        self._launched = []
        self._armed = True

    def finish(self) -> None:
        """Call after that backward pass: every ``.grad`` now holds the sum over ranks.

        A parameter that no rank used gets a gradient of zeros: ranks must send the same bytes.
        """
        while len(self._launched) < len(self._buckets):
            self._launch()
        for bucket, (flat, work) in zip(self._buckets, self._launched, strict=True):
            work.wait()
            pieces = flat.split([p.numel() for p in bucket])
            sums = [piece.view_as(p) for piece, p in zip(pieces, bucket, strict=True)]
            torch._foreach_copy_([p.grad for p in bucket if p.grad is not None], sums)
        self._armed, self._launched = False, []

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()

    def _arrived(self, parameter: torch.Tensor) -> None:
        if not self._armed:
            return
        self._waiting[self._bucket_of[parameter]] -= 1  # type: ignore[index]
        # In the order of the buckets, whatever the order of arrival: ranks must agree on it.
        while len(self._launched) < len(self._buckets) and self._waiting[len(self._launched)] == 0:
            self._launch()

    def _launch(self) -> None:
        bucket = self._buckets[len(self._launched)]
        for p in bucket:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flat = torch.cat([p.grad.reshape(-1) for p in bucket if p.grad is not None])
        work = dist.all_reduce(flat, async_op=True)
        assert work is not None
        self._launched.append((flat, work))


def _buckets(parameters: list[nn.Parameter], limit: int) -> list[list[nn.Parameter]]:
    """Parameters from last to first (about the order of the backward pass), cut at ``limit`` bytes."""
    buckets: list[list[nn.Parameter]] = []
    size = limit
    for p in reversed(parameters):
        n = p.numel() * p.element_size()
        if size + n > limit or buckets[-1][0].dtype != p.dtype:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += n
    return buckets
