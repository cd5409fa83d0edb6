"""Schedules against their closed forms."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmexp.train.config import ConstantSpec, CosineSpec, LinearSpec, WSDSpec

KINDS = [CosineSpec, LinearSpec, ConstantSpec, WSDSpec]


@given(warmup=st.integers(0, 50), total=st.integers(2, 300), data=st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_within_0_and_1_and_the_peak_is_met_after_the_warmup(kind, warmup, total, data):
    schedule = kind(warmup_steps=warmup).build()
    step = data.draw(st.integers(0, total - 1))
    assert 0 <= schedule(step, total) <= 1
    if kind is not WSDSpec and warmup < total:
        assert schedule(warmup, total) == 1
    if step < warmup:
        assert schedule(step, total) == (step + 1) / (warmup + 1)


@given(total=st.integers(3, 300), low=st.floats(0, 1), data=st.data())
def test_cosine_is_half_a_cosine_that_ends_at_its_minimum_on_the_last_step(total, low, data):
    schedule = CosineSpec(min_ratio=low).build()
    step = data.draw(st.integers(0, total - 1))
    expected = low + (1 - low) * (1 + math.cos(math.pi * step / (total - 1))) / 2
    assert schedule(step, total) == pytest.approx(expected)
    assert schedule(total - 1, total) == pytest.approx(low)


@given(total=st.integers(3, 300), low=st.floats(0, 1))
def test_linear_falls_by_the_same_amount_each_step(total, low):
    schedule = LinearSpec(min_ratio=low).build()
    values = [schedule(step, total) for step in range(total)]
    assert [a - b for a, b in itertools.pairwise(values)] == pytest.approx(
        [(1 - low) / (total - 1)] * (total - 1), abs=1e-12
    )


def test_wsd_stays_at_the_peak_and_falls_in_a_line_over_the_last_part():
    schedule = WSDSpec(warmup_steps=2, decay_fraction=0.4).build()
    values = [schedule(step, 10) for step in range(10)]
    assert values == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_warmup_longer_than_the_run_is_a_mistake(kind):
    assert [m.path for m in kind(warmup_steps=10).check_steps(10)] == ["warmup_steps"]
    assert not list(kind(warmup_steps=3).check_steps(10))


def test_a_warmup_and_a_decay_that_overlap_are_a_mistake():
    assert [m.path for m in WSDSpec(warmup_steps=5, decay_fraction=0.6).check_steps(10)] == ["warmup_steps"]
