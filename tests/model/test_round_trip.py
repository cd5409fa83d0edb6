"""Hugging Face -> ours -> Hugging Face loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from llmexp.model.families.base import ConfigReader, family
from llmexp.model.io import foreign_tensors, load, save


def test_every_tensor_comes_back_bit_for_bit(pair: Any, tmp_path: Path):
    model, spec = load(pair.folder)
    save(model, spec, tmp_path)
    again, spec_again = load(tmp_path)
    kind = family(pair.reference.config.model_type)
    back = dict(foreign_tensors(again, spec_again, kind))
    original = load_file(pair.folder / "model.safetensors")
    assert back.keys() == original.keys()
    assert all(back[name].equal(original[name]) for name in original)


def test_the_config_comes_back_as_transformers_parses_it(pair: Any):
    from transformers import AutoConfig

    spec = load(pair.folder)[1]
    model_type = pair.reference.config.model_type
    written = family(model_type).config_from(spec)
    original = json.loads((pair.folder / "config.json").read_text())
    original.pop("model_type")
    ours = AutoConfig.for_model(model_type, **written).to_dict()
    theirs = AutoConfig.for_model(model_type, **original).to_dict()
    for neutral in (
        "architectures",
        "dtype",
        "bos_token_id",
        "eos_token_id",
        "transformers_version",
        "rope_theta",
    ):
        ours.pop(neutral, None)
        theirs.pop(neutral, None)
    if model_type == "gpt2" and theirs["n_inner"] is None:
        theirs["n_inner"] = 4 * theirs["n_embd"]
    assert ours == theirs


@pytest.mark.parametrize("shard_size", ["30KB"])
def test_a_sharded_folder_loads_like_a_single_file(pair: Any, tmp_path: Path, shard_size: str):
    pair.reference.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").is_file()
    for one, other in zip(load(tmp_path)[0].parameters(), load(pair.folder)[0].parameters(), strict=True):
        assert one.equal(other)


def test_bfloat16_weights_come_back_bit_for_bit(pair: Any, tmp_path: Path, reference_of: Any):
    reference = reference_of(pair.name).bfloat16()
    reference.save_pretrained(tmp_path)
    model, spec = load(tmp_path)
    original = load_file(tmp_path / "model.safetensors")
    for name, tensor in foreign_tensors(model, spec, family(reference.config.model_type)):
        assert tensor.to(torch.bfloat16).equal(original[name])


def test_older_spelling_of_rotary_settings_is_read_the_same():
    config: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 10,
    }
    scaling: dict[str, Any] = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    }
    spec_from = family("llama").spec_from
    old = spec_from(ConfigReader({**config, "rope_theta": 5e5, "rope_scaling": dict(scaling)}, "old"))
    new = spec_from(ConfigReader({**config, "rope_parameters": {**scaling, "rope_theta": 5e5}}, "new"))
    assert old == new
    assert old.rope_theta == 5e5
    assert old.rope_scaling == "llama3"
