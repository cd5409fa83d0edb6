"""E01: conversations that began with two marks of a document's start (trl#1400, OpenRLHF#393)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmexp.tokenizer.config import BpeSpec
from llmexp.tokenizer.folder import read_folder
from llmexp.tokenizer.tokenizer import Tokenizer

INPUTS = Path(__file__).parent / "inputs"
MESSAGES: list[dict[str, str]] = json.loads((INPUTS / "e01_messages.jsonl").read_text())["messages"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bpe")
    template = str(INPUTS / "e01_template.jinja")
    BpeSpec(vocab_size=300, chat_template=template).build(texts=["two plus two is four " * 9], out=out)
    return out


def _tokenizer(folder: Path, **config: Any) -> Tokenizer:
    content, old = read_folder(folder)
    return Tokenizer(content, {**old, **config})


@pytest.mark.parametrize("add_bos", [True, False])
def test_a_template_that_writes_bos_gives_exactly_one(folder: Path, add_bos: bool) -> None:
    tokenizer = _tokenizer(folder, add_bos_token=add_bos)
    ids, _ = tokenizer.encode_chat(MESSAGES)
    assert ids.count(tokenizer.bos_id or 0) == 1
    assert ids[0] == tokenizer.bos_id


@pytest.mark.parametrize("add_bos, n", [(True, 1), (False, 0)])
def test_a_template_without_bos_gives_what_the_tokenizer_asks_for(
    folder: Path, add_bos: bool, n: int
) -> None:
    template = (INPUTS / "e01_template.jinja").read_text().replace("{{ bos_token }}", "")
    tokenizer = _tokenizer(folder, add_bos_token=add_bos, chat_template=template)
    ids, mask = tokenizer.encode_chat(MESSAGES)
    assert ids.count(tokenizer.bos_id or 0) == n
    assert len(mask) == len(ids)
    assert tokenizer.encode_prompt(MESSAGES[:1]).count(tokenizer.bos_id or 0) == n


def test_rendering_and_then_encoding_gives_the_same_ids(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = _tokenizer(folder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    rendered = tokenizer.render(MESSAGES)
    assert tokenizer.encode_chat(MESSAGES)[0] == theirs(rendered, add_special_tokens=False)["input_ids"]


def test_prompts_and_conversations_share_their_first_ids(folder: Path) -> None:
    tokenizer = _tokenizer(folder)
    prompt = tokenizer.encode_prompt(MESSAGES[:1])
    ids, mask = tokenizer.encode_chat(MESSAGES)
    assert ids[: len(prompt)] == prompt
    assert mask == [k >= len(prompt) for k in range(len(ids))]
