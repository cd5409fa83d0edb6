"""Optimizers over named parameters. A run has one optimizer object, however many rules it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from llmexp.train.muon import Muon

Parameters = dict[str, nn.Parameter]
"""By the name that the model gives each; a tied parameter has one name."""


def adamw(
    *, parameters: Parameters, lr: float, betas: list[float], eps: float, weight_decay: float
) -> Optimizer:
    """torch's AdamW, fused; matrices are decayed, vectors (norms, biases) are not."""
    trained = [p for p in parameters.values() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = AdamW(
        [g for g in groups if g["params"]], lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=_fused(trained)
    )
    return _with_peaks(optimizer)


def muon(
    *,
    parameters: Parameters,
    lr: float,
    momentum: float,
    nesterov: bool,
    ns_steps: int,
    weight_decay: float,
    adamw_lr: float,
    betas: list[float],
    eps: float,
) -> Optimizer:
    """Muon for the blocks' matrices, AdamW otherwise.

    An embedding or a head is a table of vectors, not a map between hidden states, so what Muon
    does to singular values makes no sense there.
    """
    trained = {name: p for name, p in parameters.items() if p.requires_grad}
    hidden = {name: p for name, p in trained.items() if is_hidden_matrix(name, p)}
    rest = {name: p for name, p in trained.items() if name not in hidden}
    if not hidden:
        return adamw(parameters=rest, lr=adamw_lr, betas=betas, eps=eps, weight_decay=weight_decay)
    first = Muon(
        list(hidden.values()),
        lr=lr,
        momentum=momentum,
        nesterov=nesterov,
        ns_steps=ns_steps,
        weight_decay=weight_decay,
    )
    if not rest:
        return _with_peaks(first)
    second = adamw(parameters=rest, lr=adamw_lr, betas=betas, eps=eps, weight_decay=weight_decay)
    return Composite([_with_peaks(first), second])


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether ``parameter`` maps hidden states to hidden states: a matrix inside a block."""
    return parameter.dim() == 2 and ".blocks." in f".{name}"


class Composite(Optimizer):
    """Several optimizers over disjoint parameters, stepped as one.

    Lightning counts every optimizer's steps; one object keeps its ``global_step`` the optimizer step.
    """

    def __init__(self, parts: list[Optimizer]) -> None:
        super().__init__([dict(group) for part in parts for group in part.param_groups], {})
        self.parts = parts
        # The same dict objects, so that a rate set here is the rate the part uses.
        self.param_groups = [group for part in parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Step every part. ``closure`` is run once, before them, as torch's optimizers do."""
        loss = closure() if closure is not None else None
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Each part's own, in order."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def parts_of(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizers that hold the state: those of a :class:`Composite`, or the one itself."""
    return optimizer.parts if isinstance(optimizer, Composite) else [optimizer]


def load_parts(optimizer: Optimizer, states: list[dict[str, Any]]) -> None:
    """Give each of :func:`parts_of` ``optimizer`` its state dict.

    Through the composite, not the part: loading makes a part new group objects, and the
    composite must hold the same ones or it would set the rates of the old.
    """
    optimizer.load_state_dict({"parts": states} if isinstance(optimizer, Composite) else states[0])


def set_rate(optimizer: Optimizer, ratio: float) -> None:
    """Set every group's learning rate to ``ratio`` of its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * ratio


def _with_peaks(optimizer: Optimizer) -> Optimizer:
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer


def _fused(parameters: list[nn.Parameter]) -> bool:
    """One kernel for the whole update, where torch has it: float parameters on these devices."""
    kinds = {p.device.type for p in parameters}
    return kinds <= {"cpu", "cuda", "mps"} and all(torch.is_floating_point(p) for p in parameters)
