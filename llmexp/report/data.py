"""What a report shows, as plain data: everything that is rendered is read from here and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmexp.track.params import jsonable

Curve = list[list[float]]
"""Points [step, value] in order of the step; a value that was not finite is NaN."""

CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {127: "\u2421"}
"""Control characters and the visible symbols that stand for them on a page."""


@dataclass(kw_only=True)
class StageRow:
    """One stage of the pipeline and the artifact that it made."""

    name: str
    """Its name in the pipeline."""
    stage: str
    """The stage type that it is (`pretrain`, `sft`, …)."""
    status: str = "done"
    """done · running · failed · interrupted · waiting"""
    cached: bool = False
    """The artifact was found in the store: nothing ran."""
    seconds: float | None = None
    """Wall time of the run that made the artifact; None when it is not known."""
    kind: str = ""
    """Kind of the artifact."""
    fingerprint: str = ""
    """Fingerprint of the artifact; empty when there is none."""
    path: str = ""
    """Folder of the artifact."""
    inputs: dict[str, list[str]] = field(default_factory=dict)
    """Fingerprints of the input artifacts, by need."""
    summary: dict[str, Any] = field(default_factory=dict)
    """What the stage said of its result: counts and figures."""
    config: dict[str, Any] = field(default_factory=dict)
    """The composition that made it, masked where it held values of the environment."""
    curves: dict[str, Curve] = field(default_factory=dict)
    """Metrics of the run that made it, by key."""


@dataclass(kw_only=True)
class ReportData:
    """A whole run as its report shows it. Every part but the title may be missing."""

    title: str
    """What the page is called: the experiment's or the pipeline's name."""
    command: str = ""
    """The command line that ran it."""
    status: str = "done"
    """done · running · failed · interrupted"""
    created: str = ""
    """When the run started, ISO 8601."""
    seconds: float | None = None
    """Wall time of the whole run."""
    run_id: str = ""
    """Name of the run folder."""
    stages: list[StageRow] = field(default_factory=list)
    """In the order of the pipeline."""
    evaluation: dict[str, Any] | None = None
    """What `evaluation.json` holds (see `llmexp.evaluate.result`)."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Versions, devices, code version: name to value."""
    notes: list[str] = field(default_factory=list)
    """Sentences a reader should see first (what failed, what was cut short)."""

    def as_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps(..., allow_nan=False)`: not-finite numbers become strings."""
        return jsonable(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReportData:
        """The inverse of :meth:`as_json`."""
        values = dict(data)
        rows = []
        for stage in values.pop("stages", []):
            row = dict(stage)
            row["curves"] = {k: [[float(x) for x in p] for p in c] for k, c in row.get("curves", {}).items()}
            rows.append(StageRow(**row))
        return cls(stages=rows, **values)


def visible(text: Any) -> str:
    """Text for a page: control characters as symbols, lone surrogates replaced."""
    plain = str(text).replace("\r\n", "\n").translate(CONTROL)
    return plain.encode("utf-8", errors="replace").decode("utf-8")


def label(text: Any, longest: int = 26) -> str:
    """Text for a figure: one line, cut where it is too long."""
    line = " ".join(visible(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def number(value: Any, digits: int = 4) -> str:
    """A figure for a reader: `1,234`, `0.4213`, `∞`; `–` when there is none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        figure = float(value)
    except (TypeError, ValueError):
        return visible(value)
    if math.isnan(figure):
        return "not a number"
    if math.isinf(figure):
        return "∞" if figure > 0 else "−∞"
    if isinstance(value, int):
        return f"{value:,}"
    if figure and not 1e-3 <= abs(figure) < 1e6:
        return f"{figure:.3g}"
    if figure and abs(figure) < 0.1:
        return f"{figure:.{max(1, digits - 1)}g}"
    decimals = max(0, digits - max(1, math.floor(math.log10(abs(figure))) + 1)) if figure else 1
    return f"{figure:,.{decimals}f}"


def percent(value: Any) -> str:
    """A share as a percentage."""
    return "–" if value is None else f"{100 * float(value):.1f} %"


def duration(seconds: float | None) -> str:
    """Wall time: `0.4 s`, `42 s`, `3 min 20 s`, `5 h 12 min`."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
