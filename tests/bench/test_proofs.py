"""What the tables of proofs ask for, and that a missed bar fails."""

from __future__ import annotations

import copy

import pytest

from bench import proofs
from bench.proofs import Bar, quickstart_bars, wilson

GOOD = {
    "table": {
        "pretrain": {"bits_per_byte": 1.88, "assistant_loss": 8.2, "exact_match": 0.0},
        "sft": {"bits_per_byte": 2.9, "assistant_loss": 1.95, "exact_match": 0.37},
        "control": {"bits_per_byte": 3.5, "assistant_loss": 2.1, "exact_match": 0.64},
        "grpo": {"bits_per_byte": 2.9, "assistant_loss": 1.7, "exact_match": 0.88},
    },
    "baselines": {"unigram_bits_per_byte": 2.62, "xz_bits_per_byte": 1.95},
    "problems": 129,
}
"""What one seed measured on this project's own machine."""


def missed(**changes: float) -> list[int]:
    """Which bars fail when figures are changed; ``sft__exact_match`` is that of the model ``sft``."""
    found = copy.deepcopy(GOOD)
    for name, value in changes.items():
        model, _, figure = name.partition("__")
        found["table"][model][figure] = value
    return [number for number, bar in enumerate(quickstart_bars(0, found)) if not bar.holds]


@pytest.mark.parametrize(
    "changes, bars",
    [
        ({}, []),
        ({"pretrain__bits_per_byte": 1.97}, [0]),
        ({"sft__assistant_loss": 8.3}, [1]),
        ({"sft__exact_match": 0.79}, [2]),
        ({"control__exact_match": 0.88}, [3]),
    ],
)
def test_each_promise_of_the_quickstart_has_a_bar_of_its_own(changes, bars):
    assert missed(**changes) == bars


def test_wilsons_interval_is_the_published_one():
    # Newcombe 1998, table I: 81 of 263, and 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)


@pytest.mark.parametrize("holds, code", [(True, 0), (False, 1)])
def test_a_missed_bar_fails_the_command_and_is_on_the_page(monkeypatch, tmp_path, holds, code):
    monkeypatch.setattr(proofs, "PAGES", tmp_path)
    monkeypatch.setitem(proofs.PROOFS, "short", lambda _: ("a table", [Bar(holds, "one is two")]))
    assert proofs.main(["short"]) == code
    assert ("**MISSED**: one is two" in (tmp_path / "short.md").read_text()) == (not holds)
