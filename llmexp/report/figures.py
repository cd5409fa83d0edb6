"""The figures of a report. Each function draws one, from plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llmexp.report.data import Curve, label, number
from llmexp.report.style import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 320
"""Points drawn of one curve at most; more are averaged into as many buckets."""


ON_COLOUR = "#0b0f17"
"""Ink on top of a coloured bar, in both themes."""


def new_figure(width: float, height: float, *, padding: float = 0.04) -> Figure:
    """An empty figure of that many inches, without a window or pyplot's global list."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=padding, h_pad=padding))


def thinned(curve: Curve, points: int = POINTS) -> tuple[list[float], list[float]]:
    """Steps and values of the finite points, averaged into at most ``points`` buckets."""
    finite = [(float(step), float(value)) for step, value in curve if math.isfinite(float(value))]
    size = max(1, math.ceil(len(finite) / points))
    steps, values = [], []
    for i in range(0, len(finite), size):
        bucket = finite[i : i + size]
        steps.append(sum(s for s, _ in bucket) / len(bucket))
        values.append(sum(v for _, v in bucket) / len(bucket))
    return steps, values


def smoothed(values: list[float], span: int) -> list[float]:
    """Exponential moving average with the weight of a window of ``span`` points, unbiased at the start."""
    decay = 1 - 2 / (max(1, span) + 1)
    total = weight = 0.0
    result = []
    for value in values:
        total = decay * total + (1 - decay) * value
        weight = decay * weight + (1 - decay)
        result.append(total / weight)
    return result


def draw_curve(axes: Axes, curve: Curve, colour: str, name: str) -> None:
    """A noisy curve: its points faint, their moving average on top."""
    steps, values = thinned(curve)
    span = len(values) // 16
    if span < 3:
        axes.plot(steps, values, color=colour, label=name)
        return
    axes.plot(steps, values, color=colour, alpha=0.28, linewidth=1.0)
    axes.plot(steps, smoothed(values, span), color=colour, label=name)


def draw_marked(axes: Axes, curve: Curve, colour: str, name: str) -> None:
    """A curve of few points, each of them a measurement."""
    steps, values = thinned(curve)
    axes.plot(steps, values, color=colour, label=name, marker="o", markersize=4.5, linewidth=1.6)
    axes.annotate(
        number(values[-1], 3),
        (steps[-1], values[-1]),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        color=colour,
        fontweight="bold",
        fontsize=9,
    )


def loss_figure(train: Curve, validation: Curve, colour: str, theme: Theme) -> Figure:
    """Training loss by optimizer step, and the held-out loss where it was measured."""
    figure = new_figure(4.1, 2.9)
    axes = figure.add_subplot()
    if thinned(train)[0]:
        draw_curve(axes, train, colour, "training")
    if thinned(validation)[0]:
        draw_marked(axes, validation, theme.ink, "held-out")
    bad = sum(not math.isfinite(float(value)) for _, value in train)
    step = f"optimizer step ({bad} not finite, not drawn)" if bad else "optimizer step"
    axes.set(xlabel=step, ylabel="loss, nats per token")
    axes.margins(x=0.02, y=0.12)
    axes.legend(loc="upper right")
    return figure


def reward_figure(reward: Curve, validation: Curve, colour: str, theme: Theme) -> Figure:
    """Mean reward of the sampled completions by optimizer step, and held-out exact match if measured."""
    figure = new_figure(4.1, 2.9)
    axes = figure.add_subplot()
    draw_curve(axes, reward, colour, "mean reward of the samples")
    if thinned(validation)[0]:
        draw_marked(axes, validation, theme.ink, "held-out exact match")
    axes.set(xlabel="optimizer step", ylabel="reward")
    axes.margins(x=0.02, y=0.12)
    axes.legend(loc="lower right")
    return figure


def bar_figure(
    values: dict[str, float],
    palette: dict[str, str],
    theme: Theme,
    *,
    unit: str,
    references: dict[str, float] | None = None,
    limit: float | None = None,
) -> Figure:
    """One horizontal bar a model, in the pipeline's order, with dashed reference lines."""
    references = references or {}
    figure = new_figure(5.0, 0.75 + 0.42 * len(values) + (0.25 if references else 0))
    axes = figure.add_subplot()
    finite = [v for v in (*values.values(), *references.values()) if math.isfinite(v)]
    top = limit if limit is not None else 1.14 * max([*finite, 1e-9])
    rows = range(len(values))
    widths = [min(v, top) if math.isfinite(v) else top for v in values.values()]
    axes.barh(rows, widths, height=0.62, color=[palette[n] for n in values], zorder=2)
    for row, value, width in zip(rows, values.values(), widths, strict=True):
        inside = width > 0.14 * top
        axes.annotate(
            number(value, 3),
            (0 if inside else width, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=ON_COLOUR if inside else theme.ink,
            fontweight="bold",
            zorder=4,
        )
    axes.set_yticks(rows, [label(name) for name in values])
    axes.tick_params(axis="y", labelcolor=theme.ink)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, top), xlabel=unit)
    _draw_references(axes, references, theme)
    return figure


def _draw_references(axes: Axes, references: dict[str, float], theme: Theme) -> None:
    """Dashed vertical lines, named above the axes; names that are close stand on their outer sides."""
    ordered = sorted(references.items(), key=lambda item: item[1])
    for i, (name, value) in enumerate(ordered):
        axes.axvline(value, color=theme.ink, linestyle=(0, (4, 3)), linewidth=1.2, zorder=3)
        axes.annotate(
            f"{name} {number(value, 3)}",
            (value, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if i == 0 and len(ordered) > 1 else 3, 4),
            textcoords="offset points",
            ha="right" if i == 0 and len(ordered) > 1 else "left",
            va="bottom",
            fontsize=9,
            color=theme.faint,
        )


def calibration_figure(
    calibration: dict[str, list[dict[str, Any]]],
    errors: dict[str, float],
    palette: dict[str, str],
    theme: Theme,
) -> Figure:
    """A reliability diagram a model: accuracy of the tokens in each bin of confidence."""
    columns = min(4, len(calibration))
    rows = math.ceil(len(calibration) / columns)
    figure = new_figure(2.75 * columns, 0.3 + 2.75 * rows, padding=0.11)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    cells: Iterable[Axes] = grid.flat
    panels = iter(cells)
    for name, bins in calibration.items():
        _draw_reliability(next(panels), bins, palette[name], theme)
    titled: Iterable[Axes] = grid.flat
    for axes, name in zip(titled, calibration, strict=False):
        axes.set_title(label(name))
        axes.text(0.05, 0.93, f"ECE {number(errors.get(name), 3)}", transform=axes.transAxes, va="top")
    for axes in panels:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("confidence")
    return figure


def _draw_reliability(axes: Axes, bins: list[dict[str, Any]], colour: str, theme: Theme) -> None:
    """Bars of accuracy, as opaque as the share of tokens in the bin, against the diagonal."""
    most = max([1, *(b["count"] for b in bins)])
    for b in (b for b in bins if b["count"]):
        axes.bar(
            (b["low"] + b["high"]) / 2,
            b["accuracy"],
            width=0.9 * (b["high"] - b["low"]),
            color=colour,
            alpha=0.3 + 0.7 * math.sqrt(b["count"] / most),
            zorder=2,
        )
    axes.plot([0, 1], [0, 1], color=theme.faint, linestyle=(0, (4, 3)), linewidth=1.2, zorder=3)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])


def lineage_figure(
    nodes: dict[str, tuple[str, str]], edges: list[tuple[str, str]], palette: dict[str, str], theme: Theme
) -> Figure:
    """The graph of artifacts: ``nodes`` name → (kind, short fingerprint), ``edges`` from → to."""
    depth = _depths(list(nodes), edges)
    columns: dict[int, list[str]] = {}
    for name in nodes:
        columns.setdefault(depth[name], []).append(name)
    height = max(len(names) for names in columns.values())
    figure = new_figure(max(5.4, 1.45 * len(columns)), 0.3 + 0.8 * height)
    axes = figure.add_subplot()
    place = {
        name: (float(column), (height - len(names)) / 2 + i)
        for column, names in columns.items()
        for i, name in enumerate(names)
    }
    for source, target in edges:
        (x0, y0), (x1, y1) = place[source], place[target]
        # An edge over several columns bows, away from the boxes between its ends.
        bow = 0.0 if x1 - x0 <= 1 else -0.22 if y1 <= y0 else 0.12
        arrow = {"arrowstyle": "-|>", "color": theme.faint, "linewidth": 1.0, "alpha": 0.75}
        ends = {"connectionstyle": f"arc3,rad={bow}"}
        axes.annotate("", (x1 - 0.37, y1), (x0 + 0.37, y0), arrowprops=arrow | ends, zorder=1)
    for name, (x, y) in place.items():
        _draw_node(axes, (x, y), name, nodes[name], palette.get(name, theme.faint), theme)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(height - 0.4, -0.6))
    axes.set_axis_off()
    return figure


def _draw_node(
    axes: Axes, place: tuple[float, float], name: str, about: tuple[str, str], colour: str, theme: Theme
) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = place
    style = "round,pad=0,rounding_size=0.07"
    corner, size = (x - 0.37, y - 0.3), (0.74, 0.6)
    # The card's colour first: the arrows run behind the box, not through its text.
    for face, alpha, edge in ((theme.card, 1.0, "none"), (colour, 0.16, "none"), ("none", 1.0, colour)):
        box = FancyBboxPatch(corner, *size, style, facecolor=face, edgecolor=edge, alpha=alpha, zorder=2)
        axes.add_patch(box)
    axes.text(x, y - 0.09, label(name, 16), ha="center", va="center", fontweight="bold", zorder=4)
    axes.text(
        x,
        y + 0.15,
        label(" ".join(about).strip(), 20),
        ha="center",
        va="center",
        fontsize=7.5,
        color=theme.faint,
        zorder=4,
    )


def _depths(names: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Length of the longest path that ends in each node of an acyclic graph."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in edges:
            depth[target] = min(len(names), max(depth[target], depth[source] + 1))
    return depth
