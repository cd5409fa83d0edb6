"""Stage ``export``: a model in a format that other tools open."""

from __future__ import annotations

import json
from typing import Any

from llmexp.export.huggingface import export_huggingface
from llmexp.model.io import load
from llmexp.stage.config import Export
from llmexp.stage.context import Context
from llmexp.store.artifact import Artifact
from llmexp.tokenizer.tokenizer import Tokenizer


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
    """Lineage and figures for the model card."""
    source = context.inputs["model"]
    card: dict[str, Any] = {"name": context.name, "lineage": [], "figures": {}}
    if isinstance(source, Artifact):
        manifest = source.manifest
        card["lineage"] = [
            {"stage": manifest.stage, "fingerprint": manifest.fingerprint, "inputs": manifest.inputs}
        ]
        card["figures"] = manifest.summary
    report = context.inputs.get("report")
    if isinstance(report, Artifact):
        card["evaluation"] = json.loads(report.file("evaluation.json").read_text())
    return card
