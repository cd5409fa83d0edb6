"""L02: rotary settings are not written, or not read, and long text turns to garbage."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM

from llmexp.export.huggingface import export_huggingface
from llmexp.model.config import ModelSpec
from llmexp.model.families.base import ModelFolderError, differing
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


def make_spec() -> ModelSpec:
    case = yaml.safe_load((Path(__file__).parent / "inputs/l02_rope.yaml").read_text())["model"]
    scaling = case["rope_scaling"]
    return ModelSpec(
        **{**SIZES, "max_seq_len": case["max_seq_len"]},
        vocab_size=TOKENS,
        rope_theta=case["rope_theta"],
        rope_scaling=scaling["type"],
        rope_factor=scaling["factor"],
        rope_low_freq_factor=scaling["low_freq_factor"],
        rope_high_freq_factor=scaling["high_freq_factor"],
        rope_original_max_seq_len=scaling["original_max_position"],
    )


@torch.no_grad()
def test_base_and_scaling_reach_the_file_the_logits_and_come_back(tokenizer: Path, out: Path) -> None:
    spec = make_spec()
    model = spec.build(seed=1).eval()
    export_huggingface(model, spec, tokenizer, out, {})
    assert config_of(out)["rope_parameters"] == {
        "rope_theta": 500000.0,
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    ids = torch.randint(0, TOKENS, (1, 201), generator=torch.Generator().manual_seed(1))
    got, right = AutoModelForCausalLM.from_pretrained(out).eval()(ids).logits, model(ids)
    for place in (1, 40, 200):
        torch.testing.assert_close(got[:, place], right[:, place], rtol=0, atol=1e-4)
    assert not differing(load(out)[1], spec)


def test_an_unknown_scaling_is_refused_by_name(tokenizer: Path, out: Path) -> None:
    spec = make_spec()
    export_huggingface(spec.build(seed=1), spec, tokenizer, out, {})
    config = config_of(out)
    config["rope_parameters"] = {"rope_theta": 1e4, "rope_type": "longrope", "factor": 2.0}
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError, match="rope_type='longrope'"):
        load(out)
