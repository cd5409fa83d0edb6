"""Keys and values as MLflow takes them: never two made one."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from llmexp.track.mlflow_sink import safe_key, shortened
from llmexp.track.params import flatten

KEYS = st.text(min_size=1, max_size=300) | st.text("ab./: @?", min_size=1, max_size=6)


@given(st.lists(KEYS, unique=True, max_size=8))
def test_different_keys_stay_different_and_are_allowed(keys):
    safe = [safe_key(key) for key in keys]
    assert len(set(safe)) == len(keys)
    for key in safe:
        assert re.fullmatch(r"[\w\-. :/]{1,250}", key, re.ASCII)
        assert not key.startswith("/")
        assert "//" not in key
        assert not {".", ".."} & set(key.split("/"))


def test_ordinary_keys_stay_as_they_are():
    assert safe_key("train/loss") == "train/loss"
    assert safe_key("train/loss@retry1") == "train/loss:retry1"


@given(st.text(max_size=40), st.text(max_size=40))
def test_different_values_stay_different_when_cut(a, b):
    long_a, long_b = "x" * 100 + a, "x" * 100 + b
    assert (shortened(long_a, 100) == shortened(long_b, 100)) == (a == b)
    assert len(shortened(long_a, 100)) == 100


NESTED = st.recursive(
    st.integers() | st.text("a.\\", max_size=3),
    lambda inner: st.dictionaries(st.text("a.\\0", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text("a.\\0", min_size=1, max_size=3), NESTED, min_size=1, max_size=3))
def test_flattening_keeps_every_leaf(nested):
    def leaves(value):
        return sum(map(leaves, value.values())) if isinstance(value, dict) and value else 1

    assert len(flatten(nested)) == leaves(nested)
