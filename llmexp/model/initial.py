"""Initial weights: each a function of (seed, name of the parameter) and of nothing else."""

from __future__ import annotations

import math

import torch

from llmexp.model.decoder import Decoder
from llmexp.nn.dropout import hash_seed

_RESIDUAL_OUTPUTS = ("attention.out.weight", "feed_forward.down.weight")


@torch.no_grad()
def initialise(model: Decoder, *, seed: int, std: float) -> None:
    """Fill ``model`` as GPT-2 does (Radford et al. 2019, section 2.3).

    Matrices are normal with ``std``; those that write into the residual stream with
    ``std`` / sqrt(2 · layers), so that its variance does not grow with depth. Gains are 1, biases 0.
    Numbers are drawn in fp32 on the CPU from a generator of the parameter's own, so that they do
    not depend on the device, the dtype, the order, or on which other parameters there are.
    """
    residual_std = std / math.sqrt(2 * len(model.blocks))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif "norm" in name.split(".")[-2]:
            parameter.fill_(1.0)
        else:
            _draw(parameter, seed, name, residual_std if name.endswith(_RESIDUAL_OUTPUTS) else std)


def _draw(parameter: torch.Tensor, seed: int, name: str, std: float) -> None:
    generator = torch.Generator().manual_seed(hash_seed("initial", seed, name))
    drawn = torch.empty(parameter.shape, dtype=torch.float32).normal_(0.0, std, generator=generator)
    parameter.copy_(drawn)
