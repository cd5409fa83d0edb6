"""The decoder's own behaviour: recomputation, dropout, caches, arguments."""

from __future__ import annotations

import pytest
import torch

from llmexp.model.config import ModelSpec
from llmexp.model.decoder import Decoder
from llmexp.nn.dropout import has_dropout, seed_dropout

IDS = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(0))


def build(**changes: object) -> Decoder:
    sizes: dict = {
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "ffn_dim": 64,
        "vocab_size": 50,
    }
    return ModelSpec(**{**sizes, "max_seq_len": 64, **changes}).build(seed=0)


def gradients(model: Decoder, step: int = 0) -> list[torch.Tensor]:
    model.zero_grad()
    seed_dropout(7, step, 0)
    model(IDS).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_recomputing_blocks_changes_no_gradient(dropout):
    model = build(dropout=dropout)
    kept = gradients(model)
    model.recompute = True
    assert all(a.equal(b) for a, b in zip(kept, gradients(model), strict=True))


def test_dropout_is_a_function_of_seed_step_and_index():
    model = build(dropout=0.3)
    first = gradients(model, step=3)
    torch.rand(100)
    assert all(a.equal(b) for a, b in zip(first, gradients(model, step=3), strict=True))
    assert not first[0].equal(gradients(model, step=4)[0])


def test_dropout_is_off_in_evaluation_mode_and_absent_by_default():
    model = build(dropout=0.3)
    assert has_dropout(model)
    assert not has_dropout(build())
    assert model.eval()(IDS).equal(build()(IDS))


def test_the_head_is_the_embedding_only_when_tied():
    tied, untied = build(tie_embeddings=True), build()
    assert tied.head_weight is tied.embed.weight
    assert untied.head_weight is untied.head.weight


def test_hidden_states_times_the_head_are_the_logits():
    model = build()
    assert (model.hidden(IDS) @ model.head_weight.T).equal(model(IDS))


def test_the_last_logits_alone_equal_the_last_of_all():
    model = build()
    torch.testing.assert_close(model(IDS, last_only=True), model(IDS)[:, -1:])


def test_a_full_cache_says_how_much_it_holds():
    model = build()
    with pytest.raises(ValueError, match="the cache holds 10 tokens a row, 12 are needed"):
        model(IDS, cache=model.new_cache(2, 10))


def test_documents_without_positions_are_refused():
    with pytest.raises(ValueError, match="positions that restart"):
        build()(IDS, doc_ids=torch.zeros(2, 12))


def test_a_row_of_padding_alone_gives_finite_logits_and_gradients():
    model = build()
    doc_ids = torch.full((2, 12), -1)
    logits = model(IDS, torch.zeros_like(IDS), doc_ids)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
def test_a_model_cast_to_bfloat16_keeps_its_rotary_positions_exact():
    model = build(max_seq_len=64)
    positions = torch.arange(60)[None]
    exact = model.position.rotation(positions, torch.float32)[0]
    assert model.bfloat16().position.rotation(positions, torch.float32)[0].equal(exact)


@torch.no_grad()
def test_cached_equals_uncached_under_autocast():
    model = build().eval()
    with torch.autocast("cpu", torch.bfloat16):
        cache = model.new_cache(2, 12)
        assert cache.layers[0].keys.dtype is torch.bfloat16
        pieces = torch.cat([model(piece, cache=cache) for piece in IDS.split([5, 1, 6], dim=1)], dim=1)
        torch.testing.assert_close(pieces, model(IDS), rtol=0, atol=0.02)
