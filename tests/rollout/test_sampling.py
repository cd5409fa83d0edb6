"""Sampling: which tokens may be drawn, and that a draw depends on its own key and position alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.rollout.sampling import Sampling, completion_key, draw, kept_tokens, uniforms


def kept(p: list[float], dtype: torch.dtype = torch.float32, **fields: float) -> list[int]:
    mask = kept_tokens(torch.tensor([p], dtype=dtype), Sampling(**fields))  # type: ignore[arg-type]
    return mask[0].nonzero()[:, 0].tolist()


def keys(n: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor([completion_key(seed, 0, i) for i in range(n)])


def test_top_k_keeps_exactly_k_of_equally_likely_tokens() -> None:
    assert kept([0.25] * 4, top_k=2) == [0, 1]


def test_top_p_counts_the_mass_that_top_k_left() -> None:
    assert kept([0.4, 0.3, 0.2, 0.1], top_k=2, top_p=0.5) == [0]


def test_min_p_drops_tokens_below_its_share_of_the_likeliest() -> None:
    assert kept([0.6, 0.3, 0.1], min_p=0.4) == [0, 1]


@given(
    st.lists(st.floats(-8, 8), min_size=1, max_size=12),
    st.integers(0, 14),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_the_likeliest_token_is_always_kept(logits: list[float], k: int, p: float, m: float) -> None:
    probabilities = torch.tensor([logits]).softmax(-1)
    keep = kept_tokens(probabilities, Sampling(top_k=k, top_p=p, min_p=m))
    assert keep[0, probabilities[0].argmax()]


@pytest.mark.parametrize("fields", [{"temperature": -1}, {"top_p": 1.1}, {"min_p": -0.1}, {"top_k": -1}])
def test_values_out_of_range_are_refused(fields: dict) -> None:
    with pytest.raises(ValueError):
        Sampling(**fields)


def test_a_temperature_at_which_logits_overflow_takes_the_likeliest_token() -> None:
    logits = torch.tensor([[1.0, 30.0, -2.0]])
    ids, _ = draw(logits, torch.tensor([7]), 0, Sampling(temperature=1e-320))
    assert ids.tolist() == [1]


def test_logits_that_are_not_finite_are_refused_with_the_row() -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = float("nan")
    with pytest.raises(FloatingPointError, match=r"\[1\].*token 5"):
        draw(logits, keys(3), 5, Sampling())


@given(st.permutations(range(6)), st.integers(0, 10_000))
@settings(max_examples=25)
def test_a_draw_does_not_depend_on_the_other_rows(order: list[int], position: int) -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    whole, _ = draw(logits, keys(6), position, Sampling(temperature=0.7, top_p=0.9))
    shuffled, _ = draw(logits[order], keys(6)[order], position, Sampling(temperature=0.7, top_p=0.9))
    assert torch.equal(whole[order], shuffled)


def test_uniforms_are_splitmix64() -> None:
    # The first outputs of the published generator for seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    got = [float(uniforms(torch.tensor([1234567]), t)) for t in range(3)]
    assert got == [(value >> 11) * 2.0**-53 for value in expected]


def test_draws_follow_the_distribution() -> None:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    n = 40_000
    ids, _ = draw(p.log().expand(n, 4), keys(n), 3, Sampling())
    shares = ids.bincount(minlength=4) / n
    assert torch.allclose(shares, p, atol=4 * 0.5 / n**0.5)


def test_a_truncated_token_is_never_drawn() -> None:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    ids, _ = draw(p.log().expand(2000, 4), keys(2000), 0, Sampling(top_p=0.6))
    assert set(ids.tolist()) == {0, 1}


def test_log_probabilities_are_at_the_temperature_and_before_truncation() -> None:
    logits = torch.randn(8, 20, generator=torch.Generator().manual_seed(5))
    ids, logprobs = draw(logits, keys(8), 0, Sampling(temperature=0.5, top_k=3))
    expected = (logits / 0.5).log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    assert torch.allclose(logprobs, expected, atol=1e-6)
