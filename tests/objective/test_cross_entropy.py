"""Cross entropy against its definition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.objective.cross_entropy import summed_cross_entropy


def case(seed, batch=3, seq=5, width=4, vocab=11, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(batch, seq, width, generator=g, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocab, width, generator=g, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, vocab, (batch, seq), generator=g)
    mask = torch.rand(batch, seq, generator=g) < 0.6
    return hidden, weight, targets, mask


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), logits_at_once=st.sampled_from([0, 1 << 20]))
def test_the_sum_is_over_counted_tokens_of_minus_log_softmax(seed, logits_at_once):
    hidden, weight, targets, mask = case(seed)
    total = summed_cross_entropy(hidden, weight, targets, mask, logits_at_once=logits_at_once).detach()
    expected = 0.0
    all_logits = (hidden.double() @ weight.double().T).detach()
    for b, t in mask.nonzero().tolist():
        logits = all_logits[b, t].tolist()
        expected += math.log(sum(math.exp(x) for x in logits)) - logits[int(targets[b, t])]
    assert float(total) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("bf16,tolerance", [(False, 1e-5), (True, 2e-2)])
def test_pieces_have_the_gradients_of_the_whole(bf16, tolerance):
    gradients = []
    for logits_at_once in (64 * 10, 1 << 20):
        hidden, weight, targets, mask = case(0, batch=8, seq=16, width=8, vocab=64)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            total = summed_cross_entropy(hidden, weight, targets, mask, logits_at_once=logits_at_once)
        total.backward()
        gradients.append((hidden.grad, weight.grad))
    for pieces, whole in zip(*gradients, strict=True):
        assert torch.allclose(pieces, whole, rtol=tolerance, atol=tolerance)


def test_uniform_logits_cost_the_log_of_the_vocabulary_a_token():
    hidden, weight, targets, mask = case(1)
    total = summed_cross_entropy(hidden, torch.zeros_like(weight), targets, mask).detach()
    assert float(total) == pytest.approx(int(mask.sum()) * math.log(11), rel=1e-6)


def test_nothing_counted_is_0_with_a_gradient_of_zeros():
    hidden, weight, targets, mask = case(2)
    total = summed_cross_entropy(hidden, weight, targets, torch.zeros_like(mask))
    total.backward()
    assert total.item() == 0.0
    assert not hidden.grad.any()


def test_under_bf16_autocast_the_loss_is_float32():
    hidden, weight, targets, mask = case(3)
    for logits_at_once in (0, 1 << 20):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = summed_cross_entropy(hidden, weight, targets, mask, logits_at_once=logits_at_once)
        assert total.dtype == torch.float32
