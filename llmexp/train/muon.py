"""Muon, with its orthogonalisation in a number format that the device multiplies fast."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of an iteration's odd polynomial: the steepest at 0 that keeps singular values near 1 (Jordan 2024)."""


class Muon(torch.optim.Muon):
    """torch's Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon), in fp32 on a CPU.

    torch's own multiplies in bf16 wherever it runs, which is right on a GPU. A CPU without AVX-512
    does it in software, a hundred times as slow as fp32: a small model's training step then takes
    several times as long. The rule asks for the kind of device alone, so that a result does not
    depend on the model of the CPU.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step: momentum, orthogonalisation, decoupled decay, update."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                update = orthogonalized(self._direction(parameter, group), group["ns_steps"])
                # Rows beyond the columns' number carry no more norm; the factor keeps an update's RMS alike.
                shape = math.sqrt(max(1.0, parameter.size(0) / parameter.size(1)))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * shape)
        return loss

    def _direction(self, parameter: Tensor, group: dict[str, float]) -> Tensor:
        """The momentum with this step's gradient in it; one step further along it with Nesterov."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        mean: Tensor = state["momentum_buffer"]
        mean.lerp_(gradient, 1 - group["momentum"])
        return gradient.lerp(mean, group["momentum"]) if group["nesterov"] else mean


def orthogonalized(matrix: Tensor, steps: int, *, eps: float = 1e-7) -> Tensor:
    """``matrix``'s singular vectors with singular values near 1, by Newton-Schulz iterations.

    Args:
        matrix: (rows, columns).
        steps: iterations of ``X ← aX + (bA + cA²)X`` with ``A = XXᵀ``.
        eps: the least norm that is divided by.

    Returns:
        (rows, columns), fp32 on a CPU and bf16 elsewhere.
    """
    a, b, c = COEFFICIENTS
    wide = matrix.to(torch.float32 if matrix.device.type == "cpu" else torch.bfloat16)
    tall = matrix.size(0) > matrix.size(1)
    if tall:
        wide = wide.T
    # The spectral norm is at most the Frobenius norm.
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if tall else wide
