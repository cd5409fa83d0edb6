"""A model with more rows than the tokenizer has tokens: the rows behind are never drawn."""

from typing import Any

import pytest
import torch

from llmexp.model.config import ModelSpec
from llmexp.rollout.engine import generate, stream
from llmexp.rollout.sampling import Sampling, completion_key, draw

SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 1, "n_heads": 4, "ffn_dim": 64, "max_seq_len": 128}
ROWS_MORE = 500
SETTINGS = [
    Sampling(temperature=0, max_new_tokens=24),
    Sampling(temperature=5.0, max_new_tokens=24),
    Sampling(temperature=5.0, top_k=400, top_p=0.9, min_p=0.001, max_new_tokens=24),
]


@pytest.fixture
def padded(tokenizer: Any) -> Any:
    """A decoder that would draw a row of padding nearly always."""
    model = ModelSpec(**SIZES, vocab_size=tokenizer.vocab_size + ROWS_MORE).build(seed=3)
    with torch.no_grad():
        model.head_weight.mul_(20)
    return model.eval()


@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "hot", "truncated"])
def test_ids_behind_the_tokenizers_are_never_drawn(padded: Any, tokenizer: Any, sampling: Sampling) -> None:
    keys = [completion_key(1, i, 0) for i in range(8)]
    prompts = [[65 + i] for i in range(8)]
    free = generate(padded, prompts, sampling, keys, [])
    assert int(free.ids.max()) >= tokenizer.vocab_size, "the padding is likely, so that the limit matters"
    kept = generate(padded, prompts, sampling, keys, [], vocab_size=tokenizer.vocab_size)
    assert int(kept.ids.max()) < tokenizer.vocab_size
    assert bool(torch.isfinite(kept.logprobs).all())


def test_a_stream_draws_what_a_batch_draws_within_the_tokenizers_ids(padded: Any, tokenizer: Any) -> None:
    sampling = Sampling(temperature=1.0, max_new_tokens=24)
    whole = generate(padded, [[65]], sampling, [9], [], vocab_size=tokenizer.vocab_size)
    pieces = "".join(stream(padded, tokenizer, [65], sampling, 9, []))
    assert pieces == tokenizer.decode(whole.ids[0].tolist())


def test_log_probabilities_stay_those_of_the_whole_softmax(tokenizer: Any) -> None:
    logits = torch.randn(4, tokenizer.vocab_size + ROWS_MORE, generator=torch.Generator().manual_seed(0))
    ids, logprobs = draw(logits, torch.arange(4), 0, Sampling(), vocab_size=tokenizer.vocab_size)
    expected = logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    torch.testing.assert_close(logprobs, expected)
