"""The model card: README.md with front matter, lineage and figures."""

from __future__ import annotations

import json
from typing import Any

_FRONT = ("license", "language", "datasets", "base_model", "tags")


def render_card(card: dict[str, Any], *, n_params: int, dtype: str) -> str:
    """Markdown for ``card``: ``name`` is the title, each other key a section.

    A section's value may be text, a dict (a table of two columns), a list of dicts (a table with
    their keys as columns) or a list (bullets). Keys that the Hub's front matter knows
    (license, language, datasets, base_model, tags) go there. No license is assumed.
    """
    front: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    front |= {key: card[key] for key in _FRONT if key in card}
    # JSON is YAML: values need no quoting rules of our own.
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in front.items()), "---", ""]
    lines += [f"# {card.get('name', 'Model')}", "", f"{n_params:,} parameters, {dtype}.", ""]
    for key, value in card.items():
        if key != "name" and key not in _FRONT:
            lines += [f"## {key.replace('_', ' ').capitalize()}", "", *_section(value), ""]
    return "\n".join(lines)


def _section(value: Any) -> list[str]:
    if isinstance(value, dict):
        return _table(["", "value"], [[name, entry] for name, entry in value.items()])
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        columns = list(dict.fromkeys(name for row in value for name in row))
        return _table(columns, [[row.get(name, "") for name in columns] for row in value])
    if isinstance(value, list):
        return [f"- {_cell(entry)}" for entry in value]
    return [str(value)]


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    written = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return ["| " + " | ".join(row) + " |" for row in written]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|").replace("\n", " ")
