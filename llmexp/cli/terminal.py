"""What verbs print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llmexp.track.params import jsonable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 200
"""Columns of a table that goes to a file or a pipe."""


def console() -> Console:
    """Where tables go: as wide as the terminal, and never cut when there is none."""
    from rich.console import Console

    class Printing(Console):
        """Leaves it to the command what it means that the reader is gone; rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise

    return Printing(
        file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False, soft_wrap=False
    )


def table(*columns: str, title: str | None = None) -> Table:
    """A table without vertical lines; a column whose name ends in ``>`` is right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
    )
    for name in columns:
        made.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", overflow="fold")
    return made


def row(made: Table, cells: Iterable[Any], style: str = "") -> None:
    """Add a row whose texts are no markup."""
    from rich.text import Text

    made.add_row(
        *(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in cells),
        style=style,
    )


def print_json(data: Any) -> None:
    """Strict JSON on standard output; numbers that are not finite as strings."""
    json.dump(jsonable(data), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def size(count: float) -> str:
    """A number of bytes in a few characters, in powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Nested data as ``a.b.0: value``; empty lists and mappings stay values."""
    if isinstance(data, dict) and data:
        items = [(str(k), v) for k, v in data.items()]
    elif isinstance(data, list) and any(isinstance(one, (dict, list)) for one in data):
        items = [(str(i), v) for i, v in enumerate(data)]
    else:
        return {prefix: data}
    found: dict[str, Any] = {}
    for key, value in items:
        found |= flat(value, f"{prefix}.{key}" if prefix else key)
    return found


def value_text(value: Any) -> str:
    """A configuration value as it is written in YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
