"""The dtype in which matrix products are computed."""

from __future__ import annotations

import torch


def compute_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Autocast's dtype for products on ``tensor``'s device, where it is on; else that of ``tensor``."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def for_products(x: torch.Tensor) -> torch.Tensor:
    """``x`` in the dtype of products.

    Autocast would convert it for each linear layer that reads it, and keep each copy for the
    backward pass; a part with several such layers converts once.
    """
    return x.to(compute_dtype(x))


def autocast(device: torch.device, *, bf16: bool) -> torch.autocast:
    """The context in which matrix products on ``device`` are bfloat16, if ``bf16`` says so."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16)
