"""What export_huggingface writes, as transformers reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from llmexp.export.huggingface import export_huggingface
from llmexp.model.config import ModelSpec
from llmexp.model.decoder import Decoder
from llmexp.model.families.base import ModelFolderError
from llmexp.model.io import load

os.environ.setdefault("HF_HUB_OFFLINE", "1")
TOKENS = 97


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word-level tokenizer of 97 tokens with special tokens and a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = {f"w{i}": i for i in range(TOKENS - 3)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>", "<|pad|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": {"__type": "AddedToken", "content": "<|pad|>"},
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def make_spec(**changes: object) -> ModelSpec:
    values: dict = {
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "ffn_dim": 48,
        "vocab_size": TOKENS,
        "max_seq_len": 256,
        "init_std": 0.3,
    }
    return ModelSpec(**{**values, **changes})


GPT2 = {
    "n_kv_heads": None,
    "norm": "layer_norm",
    "position": "learned",
    "feed_forward": "gelu_tanh",
    "biases": "all",
    "tie_embeddings": True,
}


def export(spec: ModelSpec, tokenizer_folder: Path, out: Path, **keywords: object) -> Decoder:
    model = spec.build(seed=3).eval()
    export_huggingface(model, spec, tokenizer_folder, out, {"name": "Test"}, **keywords)
    return model


def reference(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True}, {"biases": "all"}, GPT2])
@torch.no_grad()
def test_transformers_gives_the_same_logits_and_greedy_text(changes, tokenizer_folder, tmp_path):
    model = export(make_spec(**changes), tokenizer_folder, tmp_path)
    ids = torch.randint(0, TOKENS, (2, 40), generator=torch.Generator().manual_seed(1))
    other = reference(tmp_path)
    assert model(ids).std() >= 1
    torch.testing.assert_close(other(ids).logits, model(ids), rtol=0, atol=1e-4)
    ours = ids[:, :5]
    for _ in range(12):
        ours = torch.cat((ours, model(ours, last_only=True).argmax(-1)), dim=1)
    prompt = ids[:, :5]
    theirs = other.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, eos_token_id=None, do_sample=False
    )
    assert theirs.equal(ours)


def test_the_tokenizer_with_its_template_and_special_tokens_comes_along(tokenizer_folder, tmp_path):
    from transformers import AutoTokenizer

    export(make_spec(), tokenizer_folder, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.eos_token_id == 94
    assert tokenizer.pad_token_id == 96
    assert tokenizer.apply_chat_template([{"role": "user", "content": "w5"}], tokenize=False) == "w5"


def test_generation_ends_at_every_end_token(tokenizer_folder, tmp_path):
    export(make_spec(), tokenizer_folder, tmp_path, end_ids=[94, 95])
    written = json.loads((tmp_path / "generation_config.json").read_text())
    assert written["eos_token_id"] == [94, 95]
    assert reference(tmp_path).generation_config.eos_token_id == [94, 95]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@torch.no_grad()
def test_weights_are_stored_in_the_dtype_asked_for(dtype, tokenizer_folder, tmp_path):
    model = export(make_spec(), tokenizer_folder, tmp_path, dtype=dtype)
    stored = load_file(tmp_path / "model.safetensors")["model.norm.weight"]
    assert stored.dtype == getattr(torch, dtype)
    back = load(tmp_path)[0]
    assert back.embed.weight.equal(model.embed.weight.to(stored.dtype).float())


@torch.no_grad()
def test_a_model_over_the_shard_size_is_spread_with_an_index_and_read_back(tokenizer_folder, tmp_path):
    model = export(make_spec(), tokenizer_folder, tmp_path, max_shard_bytes=20_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    assert not list(tmp_path.glob("shard-*"))
    ids = torch.arange(30)[None]
    torch.testing.assert_close(reference(tmp_path)(ids).logits, model(ids), rtol=0, atol=1e-4)
    assert load(tmp_path)[0](ids).equal(model(ids))


def test_a_model_that_no_family_expresses_is_refused_with_the_fields(tokenizer_folder, tmp_path):
    with pytest.raises(ModelFolderError, match=r"llama has another.*norm"):
        export(make_spec(norm="layer_norm"), tokenizer_folder, tmp_path)


def test_the_card_shows_lineage_and_figures(tokenizer_folder, tmp_path):
    spec = make_spec()
    card = {
        "name": "Small one",
        "license": "apache-2.0",
        "lineage": [{"stage": "pretrain", "artifact": "ab12"}, {"stage": "sft", "artifact": "cd34"}],
        "figures": {"val/loss": 1.23456, "exact | match": 0.5},
    }
    export_huggingface(spec.build(seed=0), spec, tokenizer_folder, tmp_path, card)
    text = (tmp_path / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["license"] == "apache-2.0"
    assert "# Small one" in text
    assert "| sft | cd34 |" in text
    assert "| val/loss | 1.235 |" in text
    assert "exact \\| match" in text


def test_the_spec_holds_the_keywords_of_the_export():
    import inspect

    from llmexp.config.spec import settings
    from llmexp.export.config import ExportSpec

    keywords = {p.name for p in inspect.signature(export_huggingface).parameters.values()}
    assert {f.name for f in settings(ExportSpec)} <= keywords
