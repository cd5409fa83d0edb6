"""The HTML report: one file that needs no other, no network and no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.report import figures
from llmexp.report.data import ReportData, StageRow, duration, number, percent, visible
from llmexp.report.style import DARK, LIGHT, Theme, colours, svg
from llmexp.report.tables import before_and_after, headline, lineage, yaml_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """One figure in both themes."""

    name: str
    """File name stem."""
    title: str
    note: str
    """A sentence under the title; also the text for readers who cannot see the figure."""
    light: str
    """SVG text."""
    dark: str
    """SVG text."""
    wide: bool = False
    """Takes the whole width of the page."""

    def uri(self, theme: str) -> str:
        """The figure as a data URI."""
        text: str = getattr(self, theme)
        return "data:image/svg+xml;base64," + base64.b64encode(text.encode("utf-8")).decode("ascii")


def picture(
    name: str, title: str, note: str, draw: Callable[[Theme], Figure], *, wide: bool = False
) -> Picture:
    """Draw a figure in both themes."""
    return Picture(name, title, note, svg(draw, LIGHT), svg(draw, DARK), wide)


def stage_pictures(data: ReportData, palette: dict[str, str]) -> list[Picture]:
    """The curves of each stage that trained."""
    found = []
    for row in data.stages:
        train, held = row.curves.get("train/loss", []), row.curves.get("val/loss", [])
        colour = palette[row.name]
        reward = row.curves.get("rl/reward", [])
        if _drawable(reward):
            exact = row.curves.get("val/exact_match", [])
            found.append(
                picture(
                    f"reward_{row.name}",
                    f"{row.name}: reward",
                    f"From {_ends(reward)} over {len(reward):,} steps.",
                    partial(figures.reward_figure, reward, exact, colour),
                )
            )
        elif _drawable(train) or _drawable(held):
            note = f"Held-out loss from {_ends(held)}." if _drawable(held) else f"From {_ends(train)}."
            found.append(
                picture(
                    f"loss_{row.name}",
                    f"{row.name}: loss",
                    note,
                    partial(figures.loss_figure, train, held, colour),
                )
            )
    return found


def _drawable(curve: list[list[float]]) -> bool:
    return bool(figures.thinned(curve)[0])


def _ends(curve: list[list[float]]) -> str:
    values = figures.thinned(curve, points=10)[1]
    return f"{number(values[0], 3)} to {number(values[-1], 3)}"


def evaluation_pictures(evaluation: dict[str, Any] | None, palette: dict[str, str]) -> list[Picture]:
    """Bars that compare the models, and their calibration."""
    if not evaluation:
        return []
    table: dict[str, dict[str, Any]] = evaluation.get("table", {})
    found = []
    bits = _column(table, "bits_per_byte")
    named = {"unigram": "unigram_bits_per_byte", "xz -9": "xz_bits_per_byte"}
    baselines = evaluation.get("baselines", {})
    references = {label: float(baselines[key]) for label, key in named.items() if key in baselines}
    if bits:
        found.append(
            picture(
                "bits_per_byte",
                "Bits per byte of held-out text",
                "Lower is better. Dashed: the same text under its unigram entropy, and under xz -9.",
                lambda theme: figures.bar_figure(
                    bits, palette, theme, unit="bits per byte", references=references
                ),
            )
        )
    exact = _column(table, "exact_match")
    if exact:
        shares = {name: 100 * value for name, value in exact.items()}
        found.append(
            picture(
                "exact_match",
                "Held-out problems answered exactly",
                "Higher is better. Greedy answers to problems that no training stage has seen.",
                lambda theme: figures.bar_figure(
                    shares, palette, theme, unit="% of problems", limit=max(100.0, *shares.values()) * 1.1
                ),
            )
        )
    calibration = {name: bins for name, bins in evaluation.get("calibration", {}).items() if bins}
    if calibration:
        errors = _column(table, "ece")
        found.append(
            picture(
                "calibration",
                "Calibration",
                "How often the most likely token is right, by the model's confidence in it. On the dashed "
                "line confidence is accuracy; strong bars hold more tokens.",
                lambda theme: figures.calibration_figure(calibration, errors, palette, theme),
                wide=True,
            )
        )
    return found


def _column(table: dict[str, dict[str, Any]], metric: str) -> dict[str, float]:
    return {name: float(row[metric]) for name, row in table.items() if row.get(metric) is not None}


def lineage_picture(data: ReportData, palette: dict[str, str]) -> list[Picture]:
    """The graph of artifacts, where at least two are known."""
    nodes, edges = lineage(data.stages)
    if not edges:
        return []
    note = "Which artifact was made from which."
    return [
        picture(
            "lineage",
            "Artifacts",
            note,
            lambda theme: figures.lineage_figure(nodes, edges, palette, theme),
            wide=True,
        )
    ]


def pictures(data: ReportData) -> list[Picture]:
    """Every figure that the data of a run allows, in the order of the page."""
    palette = _palette(data)
    return [
        *evaluation_pictures(data.evaluation, palette),
        *stage_pictures(data, palette),
        *lineage_picture(data, palette),
    ]


def _palette(data: ReportData) -> dict[str, str]:
    """Models have the colour of the stage that made them."""
    evaluation = data.evaluation or {}
    evaluated = list({**evaluation.get("table", {}), **evaluation.get("calibration", {})})
    stages = [row.name for row in data.stages if row.curves and row.name not in evaluated]
    plain = {row.name: "#94a3b8" for row in data.stages}
    return plain | colours(evaluated + stages)


def render(data: ReportData) -> str:
    """The whole page as HTML text."""
    import jinja2
    from markupsafe import Markup

    folder = resources.files("llmexp.report")
    style = folder.joinpath("style.css").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.undefined = jinja2.StrictUndefined
    environment.filters.update(
        visible=visible, number=number, percent=percent, duration=duration, yaml=yaml_text
    )
    template = environment.from_string(folder.joinpath("template.html").read_text(encoding="utf-8"))
    palette = _palette(data)
    return template.render(
        data=data,
        style=Markup(style),  # a file of this package
        style_hash=base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii"),
        tiles=headline(data),
        table=before_and_after(data.evaluation),
        compared=evaluation_pictures(data.evaluation, palette),
        training=stage_pictures(data, palette),
        lineage=next(iter(lineage_picture(data, palette)), None),
        short=short,
        made_from=made_from(data.stages),
    )


def short(fingerprint: str) -> str:
    """A fingerprint as people read it."""
    return fingerprint[:10]


def made_from(rows: list[StageRow]) -> dict[str, list[str]]:
    """For each stage the stages whose artifacts it took (a short fingerprint for one made elsewhere)."""
    owner = {row.fingerprint: row.name for row in rows if row.fingerprint}
    return {
        row.name: [owner.get(f, short(f)) for prints in row.inputs.values() for f in prints] for row in rows
    }


def write_report(data: ReportData, path: Path) -> Path:
    """Write the page; whole or not at all. Returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(render(data), encoding="utf-8")
    partial.replace(path)
    return path


def write_figures(data: ReportData, folder: Path) -> list[Path]:
    """Write each figure as an SVG file for the tracker (light theme). Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for drawn in pictures(data):
        path = folder / f"{_file_stem(drawn.name)}.svg"
        path.write_text(drawn.light, encoding="utf-8")
        paths.append(path)
    return paths


def _file_stem(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
