"""A small tokenizer trained once, and one of each other kind."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from llmexp.tokenizer.config import BpeSpec, BytesSpec
from llmexp.tokenizer.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def library() -> list[str]:
    """Sources of the standard library."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py"))[:25]]


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory: pytest.TempPathFactory, library: list[str]) -> Path:
    out = tmp_path_factory.mktemp("bpe")
    BpeSpec(vocab_size=1000).build(texts=library, out=out)
    return out


@pytest.fixture(scope="session")
def bpe(bpe_folder: Path) -> Tokenizer:
    return Tokenizer.load(bpe_folder)


@pytest.fixture(scope="session")
def bytes_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    out = tmp_path_factory.mktemp("bytes")
    BytesSpec().build(out=out)
    return Tokenizer.load(out)
