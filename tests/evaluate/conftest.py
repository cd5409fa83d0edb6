"""Small real models, a tokenizer and shards on disk."""

from pathlib import Path

import pytest

from llmexp.data.shards import ShardWriter
from llmexp.model.config import ModelSpec
from llmexp.model.io import save
from llmexp.tokenizer.config import BytesSpec
from llmexp.tokenizer.tokenizer import Tokenizer

TEXTS = ["import json\n", "Return a list of names. ✓", "x = 1\n" * 30, "naïve", "The end."]
CHATS = [("What is 1 + 2?", "3"), ("What is 4 + 4?", "8")]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    BytesSpec(chat_template=None).build(out=folder)
    return folder


@pytest.fixture(scope="session")
def make_model(tmp_path_factory, tokenizer_folder):
    """A function that writes the folder of a small model with weights from a seed."""

    def make(seed: int, max_seq_len: int = 128) -> Path:
        folder = tmp_path_factory.mktemp(f"model{seed}")
        tokenizer = Tokenizer.load(tokenizer_folder)
        spec = ModelSpec(
            d_model=16,
            n_layers=1,
            n_heads=2,
            ffn_dim=32,
            vocab_size=tokenizer.vocab_size,
            max_seq_len=max_seq_len,
            init_std=0.3,
        )
        save(spec.build(seed=seed), spec, folder)
        for file in tokenizer_folder.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        return folder

    return make


@pytest.fixture(scope="session")
def models(make_model) -> dict[str, Path]:
    return {"pretrain": make_model(1), "sft": make_model(2)}


@pytest.fixture(scope="session")
def shards(tmp_path_factory, tokenizer_folder) -> Path:
    """Held-out text; each document begins and ends with the document mark."""
    return write_shards(tmp_path_factory.mktemp("shards"), Tokenizer.load(tokenizer_folder), TEXTS)


@pytest.fixture(scope="session")
def chats(tmp_path_factory, tokenizer_folder) -> Path:
    folder, tokenizer = tmp_path_factory.mktemp("chats"), Tokenizer.load(tokenizer_folder)
    with ShardWriter(
        folder / "heldout", vocab_size=tokenizer.vocab_size, tokenizer=tokenizer.fingerprint, chat=True
    ) as writer:
        for asked, said in CHATS:
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
            ids, mask = tokenizer.encode_chat(turns)
            writer.write(ids, mask=mask)
    return folder


@pytest.fixture
def problems() -> list[dict]:
    return [
        {"id": str(i), "messages": [{"role": "user", "content": asked}], "answer": said}
        for i, (asked, said) in enumerate(CHATS)
    ]


def write_shards(folder: Path, tokenizer: Tokenizer, texts: list[str]) -> Path:
    with ShardWriter(
        folder / "heldout", vocab_size=tokenizer.vocab_size, tokenizer=tokenizer.fingerprint, chat=False
    ) as writer:
        for text in texts:
            ids = [tokenizer.eos_id, *tokenizer.encode(text), tokenizer.eos_id]
            writer.write(ids, n_bytes=len(text.encode()))
    return folder


@pytest.fixture(scope="session")
def empty_shards(tmp_path_factory, tokenizer_folder) -> Path:
    return write_shards(tmp_path_factory.mktemp("empty"), Tokenizer.load(tokenizer_folder), [])
