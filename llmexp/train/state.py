"""Training state as named tensors and JSON: what a checkpoint holds, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from llmexp.train.errors import ResumeMistake
from llmexp.train.optimizers import load_parts, parts_of

SHOWN = 6
"""Differing keys that an error names."""


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over the name, dtype, shape and bytes of every tensor of ``model``, in the order of names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model_tensors(model).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and saved buffer by name; a tensor that has several names has its first one only."""
    tensors: dict[str, Tensor] = {}
    seen: set[Tensor] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor not in seen:
            seen.add(tensor)
            tensors[name] = tensor.detach()
    return tensors


def load_model_tensors(model: nn.Module, saved: Mapping[str, Tensor], where: str) -> None:
    """Copy ``saved`` into ``model`` in place.

    Raises:
        ResumeMistake: names or shapes differ; the message lists which.
    """
    own = model_tensors(model)
    differ = [f"{name} is only in the model" for name in own.keys() - saved.keys()]
    differ += [f"{name} is only in the checkpoint" for name in saved.keys() - own.keys()]
    differ += [
        f"{name} is {tuple(saved[name].shape)} in the checkpoint and {tuple(own[name].shape)} in the model"
        for name in own.keys() & saved.keys()
        if own[name].shape != saved[name].shape
    ]
    if differ:
        more = f" and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
        raise ResumeMistake(f"{where} is of another model: {'; '.join(sorted(differ)[:SHOWN])}{more}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimizer's state as tensors named ``<parameter>/<key>``, and its numbers named likewise."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    for part in parts_of(optimizer):
        for parameter, state in part.state.items():
            for key, value in state.items():
                kept: dict[str, Any] = tensors if isinstance(value, Tensor) else numbers
                kept[f"{names[parameter]}/{key}"] = value
    return tensors, numbers


def load_optimizer_tensors(
    model: nn.Module,
    optimizer: Optimizer,
    tensors: Mapping[str, Tensor],
    numbers: Mapping[str, Any],
    where: str,
) -> None:
    """Give ``optimizer`` the state that :func:`optimizer_tensors` took; its groups keep their settings.

    Raises:
        ResumeMistake: the state is of other parameters or of another optimizer.
    """
    saved: dict[str, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        parameter, _, key = name.rpartition("/")
        saved.setdefault(parameter, {})[key] = value
    names = {p: name for name, p in model.named_parameters()}
    states = []
    for part in parts_of(optimizer):
        packed = part.state_dict()
        order = [names[p] for group in part.param_groups for p in group["params"]]
        packed["state"] = {i: saved.pop(name) for i, name in enumerate(order) if name in saved}
        states.append(packed)
    load_parts(optimizer, states)
    if saved:
        raise ResumeMistake(
            f"{where} holds optimizer state of other parameters: {', '.join(sorted(saved)[:SHOWN])}"
        )
