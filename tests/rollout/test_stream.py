"""Text that comes piece by piece: the pieces are the whole, and no character is broken."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmexp.rollout.engine import completion_texts, generate, stream, text_pieces
from llmexp.rollout.sampling import Sampling


@given(st.text())
def test_pieces_of_text_join_to_the_text(tokenizer: Any, text: str) -> None:
    ids = list(text.encode())
    assert "".join(text_pieces(tokenizer, ids)) == text


@given(st.binary())
def test_pieces_of_any_bytes_join_to_the_decoded_whole(tokenizer: Any, raw: bytes) -> None:
    assert "".join(text_pieces(tokenizer, list(raw))) == tokenizer.decode(list(raw))


def test_a_character_comes_whole_with_its_last_byte(tokenizer: Any) -> None:
    assert list(text_pieces(tokenizer, list("aé😀b".encode()))) == ["a", "é", "😀", "b"]


def test_special_tokens_do_not_show(tokenizer: Any) -> None:
    ids = [*b"a", tokenizer.special_ids["<|im_start|>"], *b"b"]
    assert "".join(text_pieces(tokenizer, ids)) == "ab"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stream_gives_the_text_of_a_batch(
    model: torch.nn.Module, tokenizer: Any, temperature: float
) -> None:
    prompt, sampling = list(b"What is 1+1?"), Sampling(temperature=temperature, max_new_tokens=40)
    whole = generate(model, [prompt], sampling, [7], tokenizer.end_ids)
    pieces = stream(model, tokenizer, prompt, sampling, 7, tokenizer.end_ids)
    assert "".join(pieces) == completion_texts(tokenizer, whole)[0]
