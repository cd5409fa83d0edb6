"""Small random reference models made by transformers, and ours loaded from their folders."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# With heads 24 wide, wavelengths fall below, into and above the band that is interpolated.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
}
GPT2: dict[str, Any] = {
    "vocab_size": 97,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": None,
    "eos_token_id": None,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", GPT2),
    "gpt2_untied_exact_gelu": (
        "gpt2",
        {**GPT2, "tie_word_embeddings": False, "activation_function": "gelu", "n_inner": 72},
    ),
    "llama_multi_head": ("llama", LLAMA),
    "llama_grouped_scaled": (
        "llama",
        {**LLAMA, "num_key_value_heads": 2, "head_dim": 24, "rope_parameters": LLAMA3_ROPE},
    ),
    "llama_grouped_scaled_tied": (
        "llama",
        {
            **LLAMA,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "rope_parameters": LLAMA3_ROPE,
            "tie_word_embeddings": True,
        },
    ),
    "llama_one_key_head_biases_wide_heads": (
        "llama",
        {**LLAMA, "num_key_value_heads": 1, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
    ),
}


@dataclasses.dataclass
class Pair:
    """A reference model and the folder that it was saved into."""

    name: str
    reference: Any
    folder: Path


def make_reference(name: str) -> Any:
    """The model of a case, with no gain at 1, no bias at 0, and logits that are spread out."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    kind, values = CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(**values, attn_implementation="eager"))
    else:
        model = LlamaForCausalLM(LlamaConfig(**values, attn_implementation="eager"))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter_name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(0.2 * noise)
    return model.eval()


@pytest.fixture(scope="session", params=sorted(CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Each case once a session; tests must not change the reference's weights."""
    reference = make_reference(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    reference.save_pretrained(folder)
    return Pair(request.param, reference, folder)


@pytest.fixture(scope="session")
def reference_of() -> Callable[[str], Any]:
    """Makes the reference model of a case anew, so that a test may change it."""
    return make_reference


@pytest.fixture(scope="session")
def ids() -> torch.Tensor:
    """(3, 60) token ids: longer than the rotary scaling's original length."""
    return torch.randint(0, 97, (3, 60), generator=torch.Generator().manual_seed(5))
