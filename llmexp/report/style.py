"""Colours and drawing style shared by all figures, for light and for dark pages."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"

SERIES = ("#3b82f6", "#10b981", "#f59e0b", "#a855f7", "#ec4899", "#06b6d4", "#84cc16")
"""Colours of models and stages in the order of the pipeline; legible on white and on black."""

UNTRAINED = "#94a3b8"
"""Colour of whatever has not been trained."""


@dataclass(frozen=True)
class Theme:
    """The ink of one page colour; the background is always transparent."""

    name: str
    ink: str
    faint: str
    grid: str
    card: str
    """What the page has behind a figure."""


LIGHT = Theme("light", ink="#1f2937", faint="#6b7280", grid="#e5e7eb", card="#ffffff")
DARK = Theme("dark", ink="#e5e7eb", faint="#9ca3af", grid="#374151", card="#131a26")


def colours(names: list[str], untrained: tuple[str, ...] = ("initial",)) -> dict[str, str]:
    """One colour a name, the same in every figure of a report."""
    trained = [name for name in names if name not in untrained]
    palette = {name: SERIES[i % len(SERIES)] for i, name in enumerate(trained)}
    return {name: palette.get(name, UNTRAINED) for name in names}


@contextmanager
def drawing(theme: Theme) -> Iterator[None]:
    """matplotlib's settings for one theme, for the time of a `with`; no window, no global state."""
    import matplotlib

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "llmexp",
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": theme.ink,
        "axes.labelcolor": theme.faint,
        "axes.edgecolor": theme.grid,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlecolor": theme.ink,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "xtick.color": theme.grid,
        "ytick.color": theme.grid,
        "xtick.labelcolor": theme.faint,
        "ytick.labelcolor": theme.faint,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "legend.frameon": False,
        "legend.labelcolor": theme.ink,
        "lines.linewidth": 2.0,
        "lines.solid_capstyle": "round",
    }
    with matplotlib.rc_context(cast(Any, settings)):  # its keys are typed as literals
        yield


def svg(draw: Callable[[Theme], Figure], theme: Theme) -> str:
    """A figure as SVG text, the same bytes for the same data."""
    with drawing(theme), warnings.catch_warnings():
        # The reader's fonts draw the text; ours only measures it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        draw(theme).savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue().replace("'DejaVu Sans'", FONTS)
