"""Report data, numbers in words, tables."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmexp.report.data import ReportData, duration, number, visible
from llmexp.report.figures import smoothed, thinned
from llmexp.report.tables import before_and_after, headline, lineage


def test_data_survive_strict_json(data: ReportData):
    data.stages[1].curves["train/loss"][3][1] = math.inf
    text = json.dumps(data.as_json(), allow_nan=False)
    assert ReportData.from_json(json.loads(text)) == data


@pytest.mark.parametrize(
    "value, text",
    [
        (1234567, "1,234,567"),
        (1.55649, "1.556"),
        (0.0123, "0.0123"),
        (27.4, "27.40"),
        (math.inf, "∞"),
        (4105.2, "4,105"),
        (0, "0"),
        (0.0, "0.0"),
        (None, "–"),
        (2.5e-07, "2.5e-07"),
        ("bytes", "bytes"),
    ],
)
def test_a_figure_is_written(value, text: str):
    assert number(value) == text


@pytest.mark.parametrize(
    "seconds, text",
    [(0.42, "0.4 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (18720, "5 h 12 min"), (None, "–")],
)
def test_a_time_is_written(seconds, text: str):
    assert duration(seconds) == text


@given(st.text())
def test_visible_text_can_be_written_as_utf_8_and_has_no_control_character(text: str):
    shown = visible(text)
    shown.encode("utf-8")
    assert not {c for c in shown if ord(c) < 32 and c not in "\n\t"}


def test_each_model_is_compared_with_the_one_before(data: ReportData):
    table = before_and_after(data.evaluation)
    bits = [m.key for m in table.metrics].index("bits_per_byte")
    cells = [row.cells[bits] for row in table.rows]
    assert [c.change for c in cells] == ["", "−2.35", "+0.14"]
    assert [c.better for c in cells] == [False, True, False]
    assert [c.best for c in cells] == [False, True, False]


def test_a_higher_exact_match_is_better(data: ReportData):
    table = before_and_after(data.evaluation)
    exact = [m.key for m in table.metrics].index("exact_match")
    assert [row.cells[exact].best for row in table.rows] == [False, False, True]


def test_metrics_that_the_report_does_not_know_are_shown_too(data: ReportData):
    data.evaluation["table"]["grpo"]["harness_score"] = 0.5
    assert "harness_score" in [m.title for m in before_and_after(data.evaluation).metrics]


def test_the_headline_compares_the_best_model_with_the_codes(data: ReportData):
    tiles = {tile.label: tile for tile in headline(data)}
    assert tiles["under unigram entropy"].value == "42.8 %"
    assert tiles["under xz -9"].value == "4.7 %"
    assert tiles["Exact match"].value == "56.5 %"


def test_a_model_over_xz_is_said_to_be_over_it(data: ReportData):
    data.evaluation["baselines"]["xz_bits_per_byte"] = 1.0
    assert "over xz -9" in [tile.label for tile in headline(data)]


def test_the_lineage_joins_stages_by_fingerprint(data: ReportData):
    nodes, edges = lineage(data.stages)
    assert list(nodes) == ["tokens", "pretrain", "grpo"]
    assert edges == [("tokens", "pretrain"), ("pretrain", "grpo")]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=900))
def test_thinning_keeps_the_mean_of_a_curve_within_its_range(values):
    steps, thin = thinned([[float(i), v] for i, v in enumerate(values)], points=50)
    assert len(thin) <= 50
    assert steps == sorted(steps)
    assert min(values) - 1e-9 <= min(thin)
    assert max(thin) <= max(values) + 1e-9


def test_smoothing_leaves_a_constant_curve_as_it_is():
    assert smoothed([3.0] * 20, span=5) == pytest.approx([3.0] * 20)
