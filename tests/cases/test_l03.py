"""L03: embeddings are padded, so the token count and the rows of the file differ."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM

from llmexp.export.huggingface import export_huggingface
from llmexp.model.config import ModelSpec
from llmexp.model.families.base import ModelFolderError
from llmexp.rollout.sampling import Sampling, completion_key, draw

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


CASE = json.loads((Path(__file__).parent / "inputs/l03_vocab.json").read_text())


@torch.no_grad()
def test_padded_rows_are_cut_to_the_tokenizers_size(tokenizer: Path, out: Path) -> None:
    assert CASE["tokenizer_size"] == TOKENS
    spec = ModelSpec(**SIZES, vocab_size=CASE["embedding_rows"])
    model = spec.build(seed=1).eval()
    done = export_huggingface(model, spec, tokenizer, out, {})
    assert done["trimmed_rows"] == 31
    tensors = load_file(out / "model.safetensors")
    assert tensors["model.embed_tokens.weight"].shape[0] == TOKENS
    assert tensors["lm_head.weight"].shape[0] == TOKENS
    assert config_of(out)["vocab_size"] == TOKENS
    ids = torch.arange(40)[None]
    got = AutoModelForCausalLM.from_pretrained(out).eval()(ids).logits
    torch.testing.assert_close(got, model(ids)[..., :TOKENS], rtol=0, atol=1e-4)


def test_fewer_rows_than_tokens_is_refused_with_both_numbers(tokenizer: Path, out: Path) -> None:
    spec = ModelSpec(**SIZES, vocab_size=96)
    with pytest.raises(ModelFolderError, match=r"97 tokens.*rows for 96"):
        export_huggingface(spec.build(seed=1), spec, tokenizer, out, {})


def test_rows_of_padding_are_never_sampled() -> None:
    rows = CASE["embedding_rows"]
    logits = torch.zeros(200, rows)
    logits[:, TOKENS:] = 30.0
    keys = torch.tensor([completion_key(0, i, 0) for i in range(200)])
    for sampling in (Sampling(temperature=0), Sampling(), Sampling(top_k=90, top_p=0.9)):
        ids, _ = draw(logits, keys, 0, sampling, vocab_size=TOKENS)
        assert int(ids.max()) < TOKENS
