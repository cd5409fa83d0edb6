"""Generation: the text of a row is its own, whatever the batch, the order, the cache."""

import pytest
import torch

from llmexp.model.config import ModelSpec
from llmexp.rollout.engine import Completions, generate
from llmexp.rollout.sampling import Sampling, completion_key

PROMPTS = [list(text) for text in (b"Hi", b"A much longer prompt with several more words", b"Why?")]
GREEDY = Sampling(temperature=0, max_new_tokens=12)
VOCAB = 256


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "ffn_dim": 64}
    spec = ModelSpec(**sizes, vocab_size=VOCAB, max_seq_len=128)
    decoder = spec.build(seed=1)
    with torch.no_grad():  # sharper than an untrained model, so that texts differ from prompt to prompt
        for parameter in decoder.parameters():
            parameter.mul_(3)
    return decoder


def keys(n: int) -> list[int]:
    return [completion_key(0, i, 0) for i in range(n)]


def rows(completions: Completions) -> list[list[int]]:
    return [ids[:n].tolist() for ids, n in zip(completions.ids, completions.lengths, strict=True)]


def without_cache(model: torch.nn.Module, prompt: list[int], n: int) -> list[int]:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(n):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


def test_a_batch_gives_what_each_prompt_gives_alone_without_cache(model: torch.nn.Module) -> None:
    batch = generate(model, PROMPTS, GREEDY, keys(3), [])
    assert rows(batch) == [without_cache(model, prompt, 12) for prompt in PROMPTS]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_batch_nor_order_changes_a_row(
    model: torch.nn.Module, order: list[int], temperature: float
) -> None:
    sampling, own = Sampling(temperature=temperature, max_new_tokens=12), keys(3)
    stops = range(0, VOCAB, 9)
    whole = rows(generate(model, [PROMPTS[i] for i in order], sampling, [own[i] for i in order], stops))
    alone = [rows(generate(model, [PROMPTS[i]], sampling, [own[i]], stops))[0] for i in order]
    assert whole == alone


def test_the_batch_size_does_not_change_the_text(model: torch.nn.Module) -> None:
    prompts = [prompt for prompt in PROMPTS for _ in range(6)]
    sampling = Sampling(max_new_tokens=20)
    big = generate(model, prompts, sampling, keys(18), range(0, VOCAB, 9), batch_size=18)
    small = generate(model, prompts, sampling, keys(18), range(0, VOCAB, 9), batch_size=4)
    assert rows(big) == rows(small)


def test_a_row_that_stopped_is_only_padding_afterwards(model: torch.nn.Module) -> None:
    pad = 9  # an end token too
    out = generate(model, PROMPTS * 4, Sampling(max_new_tokens=30), keys(12), range(0, VOCAB, 9), pad_id=pad)
    assert len(set(out.lengths.tolist())) > 3
    assert bool((out.ids[~out.mask] == pad).all())
    assert bool((out.logprobs[~out.mask] == 0).all())


def test_a_completion_ends_with_its_first_end_token(model: torch.nn.Module) -> None:
    stops = set(range(0, VOCAB, 9))
    out = generate(model, PROMPTS * 4, Sampling(max_new_tokens=15), keys(12), stops)
    for row, ids in enumerate(rows(out)):
        assert not stops & set(ids[:-1])
        assert bool(out.finished[row]) == (ids[-1] in stops)
        assert out.answer_ids(row) == (ids[:-1] if ids[-1] in stops else ids)


def test_log_probabilities_equal_a_full_forward_pass(model: torch.nn.Module) -> None:
    out = generate(model, PROMPTS, Sampling(temperature=0.7, max_new_tokens=12), keys(3), [])
    for row, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt + out.ids[row].tolist()])
        with torch.no_grad():
            logprobs = (model(ids)[0, len(prompt) - 1 : -1] / 0.7).log_softmax(-1)
        full = logprobs.gather(-1, out.ids[row][:, None])[:, 0]
        assert torch.allclose(out.logprobs[row], full, atol=1e-4)


def test_generation_stops_where_the_context_ends(model: torch.nn.Module) -> None:
    out = generate(model, PROMPTS, Sampling(max_new_tokens=50), keys(3), [], context_length=60)
    assert out.lengths.tolist() == [min(50, 60 - len(prompt)) for prompt in PROMPTS]
    assert not bool(out.finished.any())


def test_the_model_returns_to_its_mode(model: torch.nn.Module) -> None:
    model.train()
    generate(model, PROMPTS[:1], GREEDY, keys(1), [])
    assert model.training


@pytest.mark.parametrize("prompts, word", [([[]], "empty"), ([[1] * 60], "no room")])
def test_a_prompt_that_cannot_be_continued_is_named(model: torch.nn.Module, prompts: list, word: str) -> None:
    with pytest.raises(ValueError, match=f"prompt 0.*{word}"):
        generate(model, prompts, GREEDY, keys(1), [], context_length=60)


def test_no_prompts_give_no_completions(model: torch.nn.Module) -> None:
    assert generate(model, [], GREEDY, [], []).ids.shape[0] == 0
