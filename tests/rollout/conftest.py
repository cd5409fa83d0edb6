"""A tokenizer of bytes and a tiny decoder, both real."""

from pathlib import Path

import pytest
import torch

from llmexp.model.config import ModelSpec
from llmexp.tokenizer.bpe import make_bytes
from llmexp.tokenizer.tokenizer import Tokenizer

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "ffn_dim": 64, "max_seq_len": 128}


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Byte ``b`` is token ``b``; the special tokens follow."""
    out: Path = tmp_path_factory.mktemp("bytes")
    make_bytes(out=out, chat_template=None)
    return Tokenizer.load(out)


@pytest.fixture
def model(tokenizer: Tokenizer) -> torch.nn.Module:
    """Sharper than an untrained model, so that texts differ from prompt to prompt."""
    decoder = ModelSpec(**SIZES, vocab_size=tokenizer.vocab_size).build(seed=1)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(3)
    return decoder
