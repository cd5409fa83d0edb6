"""Model folders: what is written, and what is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmexp.model.config import ModelSpec
from llmexp.model.families.base import ConfigReader, ModelFolderError, family
from llmexp.model.folder import find_folder, read_spec, weight_files
from llmexp.model.io import load, save

LLAMA: dict = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 10,
}
GPT2: dict = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 10}


def make(**changes: object) -> ModelSpec:
    values: dict = {"d_model": 32, "n_layers": 1, "n_heads": 2, "ffn_dim": 64, "max_seq_len": 64}
    return ModelSpec(**{**values, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spec = make(tie_embeddings=True)
    save(spec.build(seed=4, tokenizer_vocab_size=40), spec, tmp_path)
    return tmp_path


def test_a_saved_model_comes_back_with_its_vocabulary_filled_in(folder):
    model, spec = load(folder)
    expected = make(tie_embeddings=True).build(seed=4, tokenizer_vocab_size=40)
    assert spec == make(tie_embeddings=True, vocab_size=40)
    assert all(a.equal(b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_a_tied_matrix_is_saved_once_and_stays_tied(folder):
    assert "head.weight" not in load_file(folder / "model.safetensors")
    model = load(folder)[0]
    assert model.head_weight is model.embed.weight


def test_weights_of_any_dtype_are_saved_in_fp32(tmp_path):
    spec = make(vocab_size=40)
    save(spec.build(seed=4, dtype=torch.bfloat16), spec, tmp_path)
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {torch.float32}


def test_init_from_gives_the_stored_weights_with_the_configured_dropout(folder):
    spec = make(tie_embeddings=True, dropout=0.1, init_from=str(folder))
    model = spec.build(seed=9, tokenizer_vocab_size=40)
    assert model.training
    assert model.blocks[0].dropout.dropout_p == 0.1
    assert model.embed.weight.equal(load(folder)[0].embed.weight)


def test_init_from_another_architecture_names_the_overrides_that_fit(folder):
    spec = make(ffn_dim=96, init_from=str(folder))
    with pytest.raises(ModelFolderError, match=r"set model\.ffn_dim=64 model\.tie_embeddings=true"):
        spec.build(seed=9, tokenizer_vocab_size=40)


def test_init_from_a_model_with_fewer_rows_than_tokens_is_refused(folder):
    with pytest.raises(ValueError, match="fewer rows"):
        make(tie_embeddings=True, init_from=str(folder)).build(seed=9, tokenizer_vocab_size=41)


def test_pickled_weights_are_never_read_and_the_remedy_is_given(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelFolderError, match=r"pytorch_model\.bin.*save_pretrained"):
        load(tmp_path)


@pytest.mark.parametrize(
    "config, field",
    [
        ({**LLAMA, "hidden_act": "relu"}, "hidden_act='relu'"),
        ({**LLAMA, "attention_bias": True}, "mlp_bias=False"),
        ({**LLAMA, "attention_dropout": 0.1}, "attention_dropout=0.1"),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type='linear'"),
        ({**LLAMA, "rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ({**LLAMA, "rope_parameters": {"rope_theta": 1e4, "new_key": 3}}, "new_key=3"),
        ({**LLAMA, "sliding_window": 4096}, "sliding_window=4096"),
        ({**LLAMA, "quantization_config": {"bits": 4}}, "quantization_config="),
        ({**GPT2, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({**GPT2, "add_cross_attention": True}, "add_cross_attention=True"),
        ({**GPT2, "activation_function": "silu"}, "activation_function='silu'"),
        ({**GPT2, "attn_pdrop": 0.2}, "attn_pdrop=0.2"),
        ({"model_type": "t5"}, "model_type='t5'"),
        ({**LLAMA, "hidden_size": None}, "'hidden_size' is missing"),
    ],
)
def test_a_config_with_a_feature_we_lack_is_refused_by_name(config, field, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError) as caught:
        read_spec(tmp_path)
    assert field in str(caught.value)


def test_the_published_gpt2_config_is_read():
    config = {
        **GPT2,
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "n_ctx": 1024,
        "n_positions": 1024,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    }
    assert family("gpt2").spec_from(ConfigReader(config, "gpt2")).dropout == 0.1


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    stored = load_file(folder / "model.safetensors") | tensors
    save_file({k: v for k, v in stored.items() if v is not None}, folder / "model.safetensors")


@pytest.mark.parametrize(
    "tensors, message",
    [
        ({"norm.weight": None}, "norm.weight is missing"),
        (
            {"blocks.0.router.weight": torch.ones(2)},
            "nothing in the model takes the tensor blocks.0.router.weight",
        ),
        ({"norm.weight": torch.ones(31)}, r"norm.weight is \(31,\)"),
        ({"norm.weight": torch.ones(32, dtype=torch.int8)}, "torch.int8"),
    ],
)
def test_weights_that_do_not_fit_are_named(tensors, message, folder):
    change(folder, **tensors)
    with pytest.raises(ModelFolderError, match=message):
        load(folder)


def test_a_truncated_weight_file_is_named(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors: not a readable"):
        load(folder)


def test_a_missing_shard_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    index = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFolderError, match="model-00002-of-00002"):
        load(tmp_path)


def test_a_folder_without_a_model_is_said_to_be_none(tmp_path):
    with pytest.raises(ModelFolderError, match="so no model folder"):
        load(tmp_path)
    with pytest.raises(ModelFolderError, match="no model folder at"):
        load(tmp_path / "absent" / "deeper")


def test_a_hub_name_is_found_in_the_local_cache(tmp_path, monkeypatch):
    commit = "0" * 40
    cached = tmp_path / "models--someone--small"
    snapshot = cached / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    (snapshot / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert find_folder("someone/small").resolve() == snapshot.resolve()
    assert read_spec("someone/small").d_model == 32


def test_a_hub_name_that_is_not_cached_says_so_when_offline(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFolderError, match="neither a folder nor a Hub model"):
        find_folder("someone/absent")


def test_a_spec_without_its_sizes_is_told(tmp_path):
    (tmp_path / "model.json").write_text('{"d_model": 32}')
    with pytest.raises(ModelFolderError, match="lacks n_layers, n_heads"):
        read_spec(tmp_path)


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd"])
def test_an_index_that_names_files_outside_its_folder_is_refused(tmp_path, name):
    index = {"weight_map": {"model.norm.weight": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFolderError, match="outside its folder"):
        weight_files(tmp_path)
