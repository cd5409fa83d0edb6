"""The tables of a report, from its data: before and after training, the headline, the lineage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from llmexp.report.data import ReportData, StageRow, duration, number, percent, visible


@dataclass(frozen=True)
class Metric:
    """A column of the table of models."""

    key: str
    title: str
    unit: str = ""
    rises: bool = False
    """A better model has a higher figure."""
    share: bool = False
    """In [0, 1], shown as a percentage."""

    def text(self, value: Any) -> str:
        """The figure as it is printed."""
        return percent(value) if self.share else number(value)


METRICS = (
    Metric("loss", "Held-out loss", "nats / token"),
    Metric("perplexity", "Perplexity"),
    Metric("bits_per_byte", "Bits per byte"),
    Metric("ece", "ECE"),
    Metric("accuracy", "Next token right", rises=True, share=True),
    Metric("assistant_loss", "Assistant loss", "nats / token"),
    Metric("exact_match", "Exact match", rises=True, share=True),
)


@dataclass(frozen=True)
class Cell:
    """One figure of one model."""

    text: str
    change: str = ""
    """Difference to the row above."""
    better: bool = False
    """That difference is an improvement."""
    best: bool = False
    """No other model has a better figure."""


@dataclass(frozen=True)
class Row:
    """One model."""

    name: str
    cells: list[Cell]


@dataclass(frozen=True)
class Table:
    """Models by metrics, in the order in which they were trained."""

    metrics: list[Metric]
    rows: list[Row]


@dataclass(frozen=True)
class Tile:
    """One headline figure."""

    label: str
    value: str
    note: str = ""
    good: bool = False


def before_and_after(evaluation: dict[str, Any] | None) -> Table | None:
    """The table of models, each compared with the one above it; None where nothing was evaluated."""
    table: dict[str, dict[str, Any]] = (evaluation or {}).get("table", {})
    if not table:
        return None
    known = {m.key for m in METRICS}
    present = list(dict.fromkeys(key for row in table.values() for key in row))
    metrics = [m for m in METRICS if m.key in present]
    metrics += [Metric(key, key) for key in present if key not in known]
    rows = []
    before: dict[str, Any] = {}
    for name, values in table.items():
        cells = [_cell(m, values, before, table) for m in metrics]
        rows.append(Row(name, cells))
        before = values
    return Table(metrics, rows)


def _cell(
    metric: Metric, values: dict[str, Any], before: dict[str, Any], table: dict[str, dict[str, Any]]
) -> Cell:
    value = values.get(metric.key)
    if value is None:
        return Cell("–")
    figure = float(value)
    others = [float(row[metric.key]) for row in table.values() if row.get(metric.key) is not None]
    finite = [v for v in others if not math.isnan(v)]
    best = bool(finite) and len(finite) > 1 and figure == (max(finite) if metric.rises else min(finite))
    earlier = before.get(metric.key)
    if earlier is None:
        return Cell(metric.text(figure), best=best)
    difference = figure - float(earlier)
    if not math.isfinite(difference) or difference == 0:
        return Cell(metric.text(figure), best=best)
    size = f"{100 * abs(difference):.1f} pts" if metric.share else number(abs(difference), 3)
    better = difference > 0 if metric.rises else difference < 0
    return Cell(metric.text(figure), f"{'+' if difference > 0 else '−'}{size}", better, best)


def headline(data: ReportData) -> list[Tile]:
    """The few figures to see first."""
    evaluation = data.evaluation or {}
    table, baselines = evaluation.get("table", {}), evaluation.get("baselines", {})
    tiles = []
    bits = {n: float(r["bits_per_byte"]) for n, r in table.items() if r.get("bits_per_byte") is not None}
    if bits:
        name, best = min(bits.items(), key=lambda item: item[1])
        tiles.append(Tile("Bits per byte, best", number(best, 4), f"held-out text, after {name}"))
        for key, label in (("unigram_bits_per_byte", "unigram entropy"), ("xz_bits_per_byte", "xz -9")):
            if key in baselines:
                tiles.append(_against(best, float(baselines[key]), label))
    exact = [(n, float(r["exact_match"])) for n, r in table.items() if r.get("exact_match") is not None]
    if exact:
        last = exact[-1]
        note = f"after {last[0]}"
        if len(exact) > 1:
            note += f"; {percent(exact[-2][1])} after {exact[-2][0]}"
        tiles.append(
            Tile("Exact match", percent(last[1]), note, good=len(exact) > 1 and last[1] > exact[-2][1])
        )
    if data.seconds is not None:
        cached = sum(row.cached for row in data.stages)
        note = f"{len(data.stages)} stages" + (f", {cached} of them cached" if cached else "")
        tiles.append(Tile("Wall time", duration(data.seconds), note))
    return tiles


def _against(best: float, reference: float, label: str) -> Tile:
    """How far the best model is under (or over) a code without a model."""
    share = 1 - best / reference
    side = "under" if share >= 0 else "over"
    return Tile(f"{side} {label}", percent(abs(share)), f"{number(reference, 3)} bits per byte", share > 0)


def lineage(rows: list[StageRow]) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Nodes (name → kind, short fingerprint) and edges of the graph of this run's artifacts."""
    nodes = {row.name: (row.kind, row.fingerprint[:8]) for row in rows if row.fingerprint}
    owner = {row.fingerprint: row.name for row in rows if row.fingerprint}
    edges = []
    for row in (r for r in rows if r.name in nodes):
        for fingerprint in (f for prints in row.inputs.values() for f in prints):
            source = owner.get(fingerprint)
            if source and source != row.name and (source, row.name) not in edges:
                edges.append((source, row.name))
    return nodes, edges


def yaml_text(config: Any) -> str:
    """A composition as people wrote it."""
    import yaml

    return visible(yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)).rstrip()
