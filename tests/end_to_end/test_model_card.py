"""The card of an exported model, as its reader finds it."""

from __future__ import annotations

import re

from commands import SMALL, artifacts, must, runs, stages

COLLECTED = [line for line in SMALL if line.startswith(("data", "tracking"))]


def test_the_card_tells_figures_and_every_stage_on_the_way(again):
    made = stages(runs(again)[-1])
    reference = made["pretrain"]["fingerprint"]
    must(again, "stage=evaluate", f"inputs.models={reference}", *COLLECTED)
    (report,) = artifacts(again, "report")
    given = [f"inputs.model={reference}", f"inputs.report={report.name}"]
    must(again, "stage=export", *given, "tracking=none")
    (export,) = artifacts(again, "export")
    card = (export / "README.md").read_text()
    figures = card.split("## Figures")[1].split("## ")[0]
    for name in ("held-out loss", "held-out perplexity", "bits per byte", "calibration error"):
        assert re.search(rf"{name}.*\| [0-9.]+ \|", figures), name
    assert "| steps of pretrain | 8 |" in figures
    assert "| tokens of pretrain |" in figures
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \| ([0-9a-f]{32}) \| (.*) \|$", card, re.MULTILINE)
    assert [row[0] for row in rows] == ["collect", "curate", "bpe", "tokens", "pretrain"]
    assert {row[0]: row[3] for row in rows} == {name: link["fingerprint"] for name, link in made.items()}
    assert rows[-1][4] == "shards: tokens, tokenizer: bpe"
    for word in ("stopped_early", "checkpoint", "outputs/runs", str(again)):
        assert word not in card
