"""A whole run's report data, to be changed by each test."""

import math

import pytest

from llmexp.report.data import ReportData, StageRow
from llmexp.report.page import render


def falling(n: int, start: float, end: float) -> list[list[float]]:
    return [[float(i), end + (start - end) * math.exp(-6 * i / n)] for i in range(n)]


def diagram() -> list[dict[str, float]]:
    bins = [{"low": i / 15, "high": (i + 1) / 15, "count": 0} for i in range(15)]
    bins[3] |= {"count": 40, "confidence": 0.23, "accuracy": 0.25}
    bins[9] |= {"count": 4, "confidence": 0.63, "accuracy": 0.5}
    return bins


@pytest.fixture
def data() -> ReportData:
    return whole_run()


@pytest.fixture(scope="session")
def untouched() -> ReportData:
    """The same, shared: not to be changed."""
    return whole_run()


@pytest.fixture(scope="session")
def page(untouched: ReportData) -> str:
    """The page of that run, drawn once."""
    return render(untouched)


def whole_run() -> ReportData:
    stages = [
        StageRow(
            name="tokens", stage="tokenize", kind="shards", fingerprint="a" * 32, cached=True, seconds=4.0
        ),
        StageRow(
            name="pretrain",
            stage="pretrain",
            kind="model",
            fingerprint="b" * 32,
            seconds=203.0,
            inputs={"shards": ["a" * 32]},
            summary={"steps": 900},
            config={"seed": 7, "optimizer": {"lr": 0.0123}},
            curves={"train/loss": falling(900, 8.3, 3.2), "val/loss": falling(9, 8.0, 3.3)},
        ),
        StageRow(
            name="grpo",
            stage="grpo",
            kind="model",
            fingerprint="c" * 32,
            seconds=80.0,
            inputs={"model": ["b" * 32]},
            curves={"rl/reward": [[float(i), i / 100] for i in range(60)]},
        ),
    ]
    evaluation = {
        "table": {
            "initial": {
                "loss": 8.32,
                "perplexity": 4105.2,
                "bits_per_byte": 3.91,
                "ece": 0.0012,
                "exact_match": 0.0,
            },
            "pretrain": {
                "loss": 3.31,
                "perplexity": 27.4,
                "bits_per_byte": 1.556,
                "ece": 0.013,
                "exact_match": 0.1,
            },
            "grpo": {
                "loss": 3.61,
                "perplexity": 36.9,
                "bits_per_byte": 1.697,
                "ece": 0.034,
                "exact_match": 0.565,
            },
        },
        "baselines": {"unigram_bits_per_byte": 2.719, "xz_bits_per_byte": 1.633},
        "calibration": {name: diagram() for name in ("initial", "pretrain", "grpo")},
        "heldout": {"documents": 321, "tokens": 71234, "bytes": 218233},
        "problems": 200,
        "samples": [
            {
                "kind": "text",
                "prompt": "Return a list of",
                "completions": {"pretrain": " names.", "grpo": " things."},
            },
            {
                "kind": "chat",
                "prompt": "What is 34 + 57?",
                "answer": "91",
                "completions": {"pretrain": "81", "grpo": "91"},
                "right": {"pretrain": False, "grpo": True},
            },
        ],
    }
    return ReportData(
        title="quickstart",
        command="llmexp experiment=quickstart",
        created="2026-11-30 22:15 UTC",
        seconds=441.0,
        run_id="2026-11-30/22-15-20",
        stages=stages,
        evaluation=evaluation,
        environment={"device": "CPU, 2 cores"},
    )
