"""Stage ``export``: a model in a format that other tools open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmexp.evaluate import result as results
from llmexp.export.huggingface import export_huggingface
from llmexp.model.io import load
from llmexp.stage.config import Export
from llmexp.stage.context import Context
from llmexp.store.artifact import Artifact
from llmexp.store.lineage import chain, lineage
from llmexp.tokenizer.tokenizer import Tokenizer

FIGURES = {
    "loss": "held-out loss, nats a token",
    "perplexity": "held-out perplexity",
    "bits_per_byte": "held-out bits per byte",
    "ece": "expected calibration error",
    "exact_match": "held-out problems answered exactly, share",
}
"""Metrics of an evaluation that a reader of the card looks for, and what they are called there."""


def run(spec: Export, context: Context) -> dict[str, Any]:
    """Write the model's folder at ``context.out``, its card with lineage and figures."""
    folder = context.path("model")
    model, model_spec = load(folder)
    tokenizer = Tokenizer.load(folder)
    return export_huggingface(
        model,
        model_spec,
        folder,
        context.out,
        _card(context),
        dtype=spec.export.dtype,
        max_shard_bytes=spec.export.max_shard_bytes,
        end_ids=sorted(tokenizer.end_ids),
    )


def _card(context: Context) -> dict[str, Any]:
    """Figures, evaluation and lineage for the model card."""
    card: dict[str, Any] = {"name": context.name}
    model, report = context.inputs["model"], context.inputs.get("report")
    table = {}
    if isinstance(report, Artifact):
        table = json.loads(report.file(results.FILE).read_text())["table"]
    if isinstance(model, Artifact):
        known = {one.fingerprint: one for one in context.store.list()}
        steps = chain(lineage([model.fingerprint], known))
        row = _row_of(model, report, table) if isinstance(report, Artifact) else {}
        card["figures"] = _measured(row) | _trained(steps, known)
        card["lineage"] = [_step(one) for one in steps]
    if table:
        card["evaluation"] = [{"model": name, **row} for name, row in table.items()]
    return card


def _row_of(model: Artifact, report: Artifact, table: dict[str, Any]) -> dict[str, Any]:
    """The figures of ``model`` in the report's table, whose rows come in the order of its inputs."""
    rows = [row for name, row in table.items() if name != results.INITIAL]
    return dict(zip(report.manifest.inputs["models"], rows, strict=True)).get(model.fingerprint, {})


def _measured(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[key] for key, name in FIGURES.items() if key in row}


def _trained(steps: list[dict[str, Any]], known: dict[str, Artifact]) -> dict[str, int]:
    """Steps and tokens of every training stage on the way."""
    found = {}
    for one in steps:
        if one["kind"] == "model":
            summary = known[one["fingerprint"]].manifest.summary
            found[f"steps of {_name(one)}"] = summary["steps"]
            found[f"tokens of {_name(one)}"] = summary["tokens"]
    return found


def _step(one: dict[str, Any]) -> dict[str, str]:
    """A row of the lineage."""
    inputs = [f"{need}: {_name(made)}" for need, several in one["inputs"].items() for made in several]
    return {
        "name": _name(one),
        "stage": one["stage"],
        "makes": one["kind"],
        "fingerprint": one["fingerprint"],
        "from": ", ".join(inputs),
    }


def _name(one: dict[str, Any]) -> str:
    """What the pipeline that made an artifact called its stage; what no stage made has no name."""
    return Path(one["run_id"]).name or one["stage"] or "given"
