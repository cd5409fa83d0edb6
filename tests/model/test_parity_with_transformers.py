"""Our decoder against transformers on the same weights, in fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from llmexp.model.decoder import Decoder
from llmexp.model.families.base import family
from llmexp.model.io import load

CLOSE = {"rtol": 0.0, "atol": 1e-4}


@pytest.fixture
def ours(pair: Any) -> Decoder:
    return load(pair.folder)[0]


@torch.no_grad()
def logits_of(model: Any, ids: torch.Tensor, **extra: torch.Tensor) -> torch.Tensor:
    return model(ids, **extra).logits


@torch.no_grad()
def test_logits_equal_the_reference(pair, ours, ids):
    expected = logits_of(pair.reference, ids)
    assert expected.std() >= 1
    torch.testing.assert_close(ours(ids), expected, **CLOSE)


def test_loss_and_every_gradient_equal_the_reference(pair, ours, ids):
    pair.reference.zero_grad()
    expected = pair.reference(ids, labels=ids).loss
    expected.backward()
    logits = ours(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.testing.assert_close(loss, expected, **CLOSE)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    theirs = dict(pair.reference.named_parameters())
    spec = load(pair.folder)[1]
    entries = family(pair.reference.config.model_type).entries(spec)
    assert {entry.theirs for entry in entries} == theirs.keys()
    for entry in entries:
        joined = torch.cat([gradients[name] for name in entry.ours])
        joined = joined.T if entry.transposed else joined
        torch.testing.assert_close(
            joined, theirs[entry.theirs].grad, **CLOSE, msg=lambda m, e=entry: f"{e}: {m}"
        )


@torch.no_grad()
def test_greedy_text_equals_the_reference(pair, ours, ids):
    prompt = ids[:, :8]
    expected = pair.reference.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False, pad_token_id=0
    )
    assert greedy(ours, prompt, 24).equal(expected)


@torch.no_grad()
def greedy(model: Decoder, prompt: torch.Tensor, n: int) -> torch.Tensor:
    cache = model.new_cache(prompt.shape[0], prompt.shape[1] + n)
    new, out = prompt, prompt
    for _ in range(n):
        new = model(new, cache=cache, last_only=True).argmax(-1)
        out = torch.cat((out, new), dim=1)
    return out


@torch.no_grad()
def test_cached_equals_uncached_in_uneven_pieces(ours, ids):
    cache = ours.new_cache(3, 64)
    pieces = [ours(piece, cache=cache) for piece in ids.split([20, 1, 1, 7, 1, 30], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), ours(ids), **CLOSE)


@torch.no_grad()
def test_a_left_padded_batch_equals_each_row_alone(ours, ids):
    lengths, n = [5, 11, 16], 6
    width = max(lengths)
    prompts = torch.zeros(3, width, dtype=torch.int64)
    doc_ids = torch.full((3, width), -1)
    positions = torch.zeros(3, width, dtype=torch.int64)
    for row, length in enumerate(lengths):
        prompts[row, width - length :] = ids[row, :length]
        doc_ids[row, width - length :] = 0
        positions[row, width - length :] = torch.arange(length)
    cache = ours.new_cache(3, width + n)
    got = [ours(prompts, positions, doc_ids, cache, last_only=True)]
    for step in range(n):
        at = torch.tensor(lengths)[:, None] + step
        got.append(ours(ids.gather(1, at), at, torch.zeros(3, 1), cache))
    for row, length in enumerate(lengths):
        alone = ours(ids[row : row + 1, : length + n])[0, length - 1 :]
        torch.testing.assert_close(torch.cat(got, dim=1)[row], alone, **CLOSE)


def pack(ids: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    packed = torch.cat([ids[i, :n] for i, n in enumerate(lengths)])[None]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    doc_ids = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])[None]
    return packed, positions, doc_ids


def test_packed_documents_equal_each_alone_in_logits_and_gradients(pair, ids):
    lengths = [13, 40, 22]
    together, alone = load(pair.folder)[0], load(pair.folder)[0]
    logits = together(*pack(ids, lengths))[0].split(lengths)
    separate = [alone(ids[i : i + 1, :n])[0] for i, n in enumerate(lengths)]
    for got, expected in zip(logits, separate, strict=True):
        torch.testing.assert_close(got, expected, **CLOSE)
    sum(x.square().mean() for x in logits).backward()
    sum(x.square().mean() for x in separate).backward()
    for (name, a), b in zip(together.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, **CLOSE, msg=lambda m, name=name: f"{name}: {m}")


@torch.no_grad()
def test_copying_a_prompt_for_several_answers_equals_computing_it_several_times(ours, ids):
    cache = ours.new_cache(2, 30)
    ours(ids[:2, :10], cache=cache)
    rows = torch.tensor([0, 0, 1])
    cache.select(rows)
    got = ours(ids[:, 10:20], cache=cache)
    expected = ours(torch.cat((ids[:2, :10][rows], ids[:, 10:20]), dim=1))[:, 10:]
    torch.testing.assert_close(got, expected, **CLOSE)
