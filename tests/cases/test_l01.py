"""L01: tied weights are saved twice, or the head is missing where readers do not tie."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM

from llmexp.export.huggingface import export_huggingface
from llmexp.model.config import ModelSpec
from llmexp.model.io import load

TOKENS = 97
SIZES: dict = {"d_model": 96, "n_layers": 2, "n_heads": 4, "ffn_dim": 48, "max_seq_len": 256, "init_std": 0.3}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer of 97 tokens."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(TOKENS)}, unk_token="w0")).save(
        str(folder / "tokenizer.json")
    )
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def config_of(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_the_folder_stores_what_its_config_says_and_gives_identical_logits(
    tied: bool, tokenizer: Path, out: Path
) -> None:
    spec = ModelSpec(**SIZES, vocab_size=TOKENS, tie_embeddings=tied)
    model = spec.build(seed=1).eval()
    export_huggingface(model, spec, tokenizer, out, {})
    assert ("lm_head.weight" in load_file(out / "model.safetensors")) is not tied
    assert config_of(out)["tie_word_embeddings"] is tied
    ids = torch.arange(40)[None]
    assert load(out)[0](ids).equal(model(ids))
    reloaded = AutoModelForCausalLM.from_pretrained(out).eval()
    torch.testing.assert_close(reloaded(ids).logits, model(ids), rtol=0, atol=1e-4)


@torch.no_grad()
def test_untied_matrices_are_both_stored_even_when_their_values_are_equal(tokenizer: Path, out: Path) -> None:
    spec = ModelSpec(**SIZES, vocab_size=TOKENS)
    model = spec.build(seed=1)
    model.head.weight.copy_(model.embed.weight)
    export_huggingface(model, spec, tokenizer, out, {})
    tensors = load_file(out / "model.safetensors")
    assert tensors["lm_head.weight"].equal(tensors["model.embed_tokens.weight"])
    assert config_of(out)["tie_word_embeddings"] is False
