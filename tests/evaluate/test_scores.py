"""The figures over scored tokens."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.classification import MulticlassCalibrationError

from llmexp.evaluate.scores import NothingToScore, TokenScores, bits_per_byte, perplexity


def scored(logits: torch.Tensor, targets: torch.Tensor, n_bins: int = 15) -> TokenScores:
    scores = TokenScores.empty(n_bins)
    scores.observe(logits, targets)
    return scores


def test_the_loss_is_the_mean_cross_entropy_of_all_tokens():
    logits, targets = torch.randn(50, 11), torch.randint(11, (50,))
    expected = torch.nn.functional.cross_entropy(logits, targets)
    assert scored(logits, targets).loss() == pytest.approx(float(expected), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_every_cut_into_batches_gives_the_same_figures(seed: int, sizes: list[int]):
    torch.manual_seed(seed)
    n = sum(sizes)
    logits, targets = torch.randn(n, 7) * 3, torch.randint(7, (n,))
    whole, parts = scored(logits, targets), TokenScores.empty(15)
    for piece, wanted in zip(logits.split(sizes), targets.split(sizes), strict=True):
        parts.observe(piece, wanted)
    assert parts.loss() == pytest.approx(whole.loss(), rel=1e-6)
    assert parts.ece() == pytest.approx(whole.ece(), abs=1e-6)
    assert parts.accuracy() == whole.accuracy()


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_calibration_error_is_that_of_torchmetrics(scale: float):
    torch.manual_seed(1)
    logits, targets = torch.randn(2000, 9) * scale, torch.randint(9, (2000,))
    expected = MulticlassCalibrationError(num_classes=9, n_bins=15, norm="l1")(logits, targets)
    assert scored(logits, targets).ece() == pytest.approx(float(expected), abs=1e-6)


def test_the_calibration_error_has_its_closed_form():
    # Ten tokens at confidence 0.8 of which six are right, ten at 0.6 of which six are right.
    sure, unsure = torch.tensor([0.8, 0.2]).log(), torch.tensor([0.6, 0.4]).log()
    logits = torch.stack([sure] * 10 + [unsure] * 10)
    targets = torch.tensor(([0] * 6 + [1] * 4) * 2)
    assert scored(logits, targets).ece() == pytest.approx(0.5 * 0.2, abs=1e-6)


def test_a_confidence_of_one_falls_into_the_last_bin():
    scores = scored(torch.tensor([[1000.0, 0.0]]), torch.tensor([0]))
    assert scores.counts[-1] == 1
    assert scores.ece() == 0.0


def test_the_bins_of_the_diagram_add_up_to_the_error():
    torch.manual_seed(3)
    scores = scored(torch.randn(500, 6) * 2, torch.randint(6, (500,)))
    bins = [b for b in scores.calibration() if b["count"]]
    total = sum(b["count"] for b in bins)
    ece = sum(b["count"] / total * abs(b["accuracy"] - b["confidence"]) for b in bins)
    assert total == 500
    assert ece == pytest.approx(scores.ece(), abs=1e-12)


def test_an_impossible_token_makes_the_loss_infinite():
    scores = scored(torch.tensor([[0.0, -math.inf]]), torch.tensor([1]))
    assert scores.loss() == math.inf
    assert perplexity(scores.loss()) == math.inf


def test_a_perplexity_beyond_floats_is_infinite():
    assert perplexity(1e4) == math.inf


def test_bits_per_byte_of_a_uniform_byte_model_are_eight():
    assert bits_per_byte(10 * math.log(256), 10) == pytest.approx(8.0)


@pytest.mark.parametrize("figure", ["loss", "accuracy", "ece"])
def test_a_figure_over_no_token_is_refused(figure: str):
    with pytest.raises(NothingToScore):
        getattr(TokenScores.empty(15), figure)()


def test_bits_per_byte_of_no_text_are_refused():
    with pytest.raises(NothingToScore):
        bits_per_byte(1.0, 0)


def test_half_precision_logits_are_scored_in_float32():
    logits, targets = torch.randn(20, 8).bfloat16(), torch.randint(8, (20,))
    assert scored(logits, targets).nats == pytest.approx(scored(logits.float(), targets).nats, rel=1e-9)
