"""What an evaluation says, as the plain data of ``evaluation.json``. Imports no torch.

    {"table": {model: {metric: figure}},       in the order of training
     "baselines": {"unigram_bits_per_byte", "xz_bits_per_byte"},
     "calibration": {model: [{"low", "high", "count", "confidence", "accuracy"}]},
     "heldout": {"documents", "tokens", "bytes", "seq_len"},
     "chats": {"documents", "tokens"},          tokens that count
     "problems": number of held-out problems,
     "samples": [{"kind": "text" | "chat", "prompt", "completions": {model: text},
                  and for chats "answer", "right": {model: bool}}]}

Metrics: ``loss`` (nats per token), ``perplexity``, ``bits_per_byte``, ``ece``, ``accuracy`` (of the
likeliest token), ``assistant_loss`` (nats per assistant token), ``exact_match`` (share of problems).
A part that was not measured is left out. Numbers that are not finite are the strings "inf",
"-inf" and "nan": JSON has none, and ``float`` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmexp.track.params import jsonable

FILE = "evaluation.json"
"""Name of the file in the artifact of an evaluation."""

INITIAL = "initial"
"""Name of the model that was not trained."""

_TASKS = {"assistant_loss": "chats", "exact_match": "problems"}


def write(result: dict[str, Any], folder: Path) -> Path:
    """Write ``evaluation.json`` into ``folder`` as strict JSON. Returns its path."""
    path = folder / FILE
    path.write_text(json.dumps(jsonable(result), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """The figures that are worth having in the artifact's manifest: finite plain data."""
    heldout = result.get("heldout", {})
    scalars = {key: heldout[key] for key in ("documents", "tokens", "bytes") if key in heldout}
    scalars |= {key: value for key, value in result.items() if key == "problems"}
    return jsonable({**scalars, **result.get("baselines", {}), "models": result.get("table", {})})


def tracked(result: dict[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """What goes to the tracker: for each model its place in the table, and its figures.

    Keys are ``eval/<task>/<metric>`` with the place as the step, so that a figure over the
    stages of training is one curve; and ``eval/<task>/<metric>/<model>`` for reading by name.
    """
    for place, (model, row) in enumerate(result.get("table", {}).items()):
        values: dict[str, float] = {}
        for metric, figure in row.items():
            key = f"eval/{_TASKS.get(metric, 'heldout')}/{metric.removeprefix('assistant_')}"
            values[key] = values[f"{key}/{model}"] = float(figure)
        yield place, values
