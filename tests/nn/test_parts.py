"""Parts against the formulas that define them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from llmexp.nn.attention import Attention, attend
from llmexp.nn.cache import Cache, LayerCache
from llmexp.nn.dropout import Dropout, hash_seed
from llmexp.nn.feed_forward import GELU, SwiGLU
from llmexp.nn.norm import layer_norm, rms_norm
from llmexp.nn.position import LearnedPosition, Llama3Scaling, RotaryPosition, rotary_frequencies, rotate
from llmexp.nn.visibility import CAUSAL, Visibility, additive, document_visibility

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def naive_attention(q, k, v, visible):
    """Softmax of scaled products over the visible keys, one head and one query at a time."""
    group = q.shape[1] // k.shape[1]
    out = torch.zeros_like(q)
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in q.shape[:3])).tolist():
        seen = visible[b, i].nonzero()[:, 0]
        scores = k[b, h // group, seen] @ q[b, h, i] / math.sqrt(q.shape[3])
        out[b, h, i] = scores.softmax(0) @ v[b, h // group, seen]
    return out


@given(kv_heads=st.sampled_from([1, 2, 4]), seq=st.integers(1, 7), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_attention_over_documents_equals_the_formula(kv_heads, seq, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, heads, seq, 6, generator=generator) for heads in (4, kv_heads, kv_heads))
    doc_ids = torch.randint(-1, 2, (2, seq), generator=generator)
    causal = torch.ones(seq, seq, dtype=torch.bool).tril()
    visible = causal & (doc_ids[:, :, None] == doc_ids[:, None, :])
    expected = naive_attention(q, k, v, visible)
    torch.testing.assert_close(attend(q, k, v, document_visibility(doc_ids)), expected, **CLOSE)
    expected = naive_attention(q, k, v, causal.expand(2, seq, seq))
    torch.testing.assert_close(attend(q, k, v, CAUSAL), expected, **CLOSE)


@pytest.mark.parametrize("mask", [None, torch.tensor([True, False, True, True, False])[None, None, None]])
def test_one_query_of_grouped_heads_equals_the_formula(mask):
    q, k, v = torch.randn(3, 6, 1, 8), torch.randn(3, 2, 5, 8), torch.randn(3, 2, 5, 8)
    visible = torch.ones(3, 1, 5, dtype=torch.bool) if mask is None else mask[:, 0].expand(3, 1, 5)
    seen = Visibility(mask=None, causal=False) if mask is None else additive(mask, torch.float32)
    got = attend(q, k, v, seen)
    torch.testing.assert_close(got, naive_attention(q, k, v, visible), **CLOSE)


def test_attention_has_a_bias_only_when_asked():
    names = dict(Attention(8, n_heads=2, n_kv_heads=1, head_dim=4).named_parameters())
    assert not any("bias" in name for name in names)
    names = dict(Attention(8, n_heads=2, n_kv_heads=1, head_dim=4, bias=True).named_parameters())
    assert names["k.bias"].shape == (4,)
    assert names["out.bias"].shape == (8,)


def test_rotation_turns_each_pair_by_position_times_frequency():
    part = RotaryPosition(6, theta=100.0)
    x = torch.randn(1, 1, 1, 6)
    turned = rotate(x, part.rotation(torch.tensor([[5]]), torch.float32))[0, 0, 0]
    for pair in range(3):
        angle = 5 * 100.0 ** (-2 * pair / 6)
        a, b = x[0, 0, 0, pair].item(), x[0, 0, 0, pair + 3].item()
        assert turned[pair].item() == pytest.approx(a * math.cos(angle) - b * math.sin(angle), abs=1e-5)
        assert turned[pair + 3].item() == pytest.approx(a * math.sin(angle) + b * math.cos(angle), abs=1e-5)


@given(shift=st.integers(0, 500), distance=st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_rotated_products_depend_on_the_distance_alone(shift, distance):
    part = RotaryPosition(8, theta=10000.0)
    q, k = torch.arange(8.0), torch.arange(8.0).flip(0)

    def product(at: int) -> float:
        turned = [
            rotate(x[None, None, None], part.rotation(torch.tensor([[p]]), torch.float32))
            for x, p in ((q, at + distance), (k, at))
        ]
        return (turned[0] * turned[1]).sum().item()

    assert product(shift) == pytest.approx(product(0), abs=2e-2)


def test_llama3_scaling_keeps_short_waves_stretches_long_ones_and_interpolates_between():
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=64)
    plain, scaled = rotary_frequencies(32, 10000.0), rotary_frequencies(32, 10000.0, scaling)
    wavelengths = 2 * math.pi / plain
    short, long = wavelengths < 64 / 4, wavelengths > 64 / 1
    between = ~short & ~long
    assert short.any()
    assert long.any()
    assert between.any()
    assert scaled[short].equal(plain[short])
    torch.testing.assert_close(scaled[long], plain[long] / 8)
    assert (scaled[between] < plain[between]).all()
    assert (scaled[between] > plain[between] / 8).all()


def test_a_learned_position_adds_its_row():
    part = LearnedPosition(10, 4)
    torch.nn.init.normal_(part.weight)
    x, positions = torch.randn(2, 3, 4), torch.tensor([[0, 1, 9], [5, 0, 1]])
    assert part.embed(x, positions).equal(x + part.weight[positions])
    with pytest.raises(IndexError):
        part.embed(x, positions + 1)


def test_feed_forwards_equal_their_formulas():
    x = torch.randn(3, 8)
    part = SwiGLU(8, 12)
    torch.testing.assert_close(part(x), part.down(F.silu(part.gate(x)) * part.up(x)))
    exact, tanh = GELU(8, 12), GELU(8, 12, approximate="tanh")
    tanh.load_state_dict(exact.state_dict())
    h = exact.up(x)
    torch.testing.assert_close(exact(x), exact.down(h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))))
    curve = torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))
    torch.testing.assert_close(tanh(x), tanh.down(0.5 * h * (1 + curve)))


def test_norms_equal_their_formulas():
    x = torch.randn(3, 8)
    rms, layer = rms_norm(8, eps=1e-3), layer_norm(8, eps=1e-3, bias=True)
    torch.testing.assert_close(rms(x), x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt())
    centred = x - x.mean(-1, keepdim=True)
    torch.testing.assert_close(layer(x), centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt())
    assert layer_norm(8, eps=1e-3, bias=False).bias is None


def test_dropout_keeps_the_mean_and_is_the_identity_in_evaluation():
    part, x = Dropout(0.25), torch.ones(200, 200)
    torch.manual_seed(0)
    dropped = part(x)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert part.eval()(x) is x


def test_a_hashed_seed_tells_its_parts_apart():
    assert hash_seed("a", 1, 23) != hash_seed("a", 12, 3)
    assert hash_seed(0, "weight") == 7904749961090679663


def make_cache(batch: int = 3, max_len: int = 8) -> Cache:
    return Cache([LayerCache(batch, 1, max_len, 2, dtype=torch.float32, device=torch.device("cpu"))])


def test_a_cache_returns_all_keys_so_far_in_order():
    cache, keys = make_cache(), torch.randn(3, 1, 5, 2)
    cache.reserve(3, None)
    cache.append(0, keys[:, :, :3], keys[:, :, :3])
    cache.reserve(2, None)
    assert cache.append(0, keys[:, :, 3:], keys[:, :, 3:])[0].equal(keys)
    assert cache.lengths == [5, 5, 5]


def test_selected_rows_keep_their_lengths_and_documents():
    cache = make_cache()
    doc_ids = torch.tensor([[-1, 0], [0, 0], [-1, -1]])
    cache.reserve(2, doc_ids)
    cache.append(0, torch.zeros(3, 1, 2, 2), torch.zeros(3, 1, 2, 2))
    cache.select(torch.tensor([1, 1, 0]))
    visibility = cache.reserve(1, None)
    assert (visibility.mask[:, 0, 0] == 0).sum(-1).tolist() == [3, 3, 2]
