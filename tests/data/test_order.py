"""The data order: a permutation each epoch, in proportion, from the seed alone."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.data.config import MIXTURE_BLOCK, LoaderSpec
from llmexp.data.order import DataOrder, Permutation, block_shares, key_of


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 400), key=st.integers(0, 2**64 - 1))
def test_a_permutation_is_one(n: int, key: int) -> None:
    permutation = Permutation(n, key)
    assert sorted(map(permutation, range(n))) == list(range(n))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 2**48), key=st.integers(0, 2**64 - 1), data=st.data())
def test_a_permutation_of_any_size_takes_no_memory(n: int, key: int, data: st.DataObject) -> None:
    permutation = Permutation(n, key)
    some = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=20))
    values = {permutation(k) for k in some}
    assert len(values) == len(some)
    assert max(values) < n


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.integers(0, 30), min_size=1, max_size=4).filter(any), seed=st.integers(0, 2**32))
def test_every_row_comes_once_an_epoch(rows: list[int], seed: int) -> None:
    order = DataOrder(rows, seed=seed)
    total = sum(rows)
    everything = sorted((s, r) for s, n in enumerate(rows) for r in range(n))
    for epoch in range(3):
        assert sorted(order[epoch * total + k] for k in range(total)) == everything


def test_epochs_and_seeds_differ() -> None:
    def epoch(seed: int, number: int) -> list[tuple[int, int]]:
        order = DataOrder([50], seed=seed)
        return [order[50 * number + k] for k in range(50)]

    assert len({tuple(epoch(seed, number)) for seed in range(3) for number in range(3)}) == 9


def test_an_order_looks_shuffled() -> None:
    """Neighbours land far apart: the mean distance of a random permutation is a third of its length."""
    permutation = Permutation(3000, key_of(1))
    values = [permutation(k) for k in range(3000)]
    distance = sum(abs(a - b) for a, b in itertools.pairwise(values)) / 2999
    assert 900 < distance < 1100
    fixed = sum(value == k for k, value in enumerate(values))
    assert fixed < 10


@settings(max_examples=30, deadline=None)
@given(weights=st.lists(st.floats(0.01, 10), min_size=1, max_size=5))
def test_shares_of_a_block_are_proportions(weights: list[float]) -> None:
    shares = block_shares(weights)
    assert sum(shares) == MIXTURE_BLOCK
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - MIXTURE_BLOCK * weight / sum(weights)) < 1


def test_a_mixture_holds_its_proportions_and_each_source_its_epochs() -> None:
    order = DataOrder([1000, 500], [3, 1], seed=7)
    samples = [order[k] for k in range(2 * MIXTURE_BLOCK)]
    counts = Counter(source for source, _ in samples)
    assert counts == {0: 1.5 * MIXTURE_BLOCK, 1: 0.5 * MIXTURE_BLOCK}
    first = sorted(row for source, row in samples if source == 0)
    seen = Counter(first)
    assert set(seen.values()) <= {6, 7}
    # Its epochs follow one another: by places of the source, the first thousand are all of its rows.
    assert len(seen) == 1000


def test_a_source_of_weight_zero_never_comes() -> None:
    order = DataOrder([5, 5], [1, 0], seed=0)
    assert {order[k][0] for k in range(200)} == {0}


def test_a_mixture_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 weights for 1"):
        DataOrder([5], [1, 1], seed=0)
    with pytest.raises(ValueError, match="no samples"):
        DataOrder([5, 0], [1, 1], seed=0)


@pytest.mark.parametrize("mixture, n", [([], 0), ([1, 3], 0), ([0, 0], 1), ([1, 1e-6], 1)])
def test_the_spec_checks_the_mixture(mixture: list[float], n: int) -> None:
    assert len(list(LoaderSpec(mixture=mixture).check())) == n


def test_the_order_of_a_release_is_that_of_the_next() -> None:
    """Runs that are resumed with a later version must find the same order."""
    order = DataOrder([1000], seed=42)
    assert [order[k][1] for k in range(6)] == EXPECTED


EXPECTED = [457, 203, 940, 928, 782, 198]
