"""Whole tables of proofs: ``python -m bench.proofs NAME`` runs one and writes ``docs/proofs/NAME.md``.

It ends with 1 when a bar is missed, which the page then says too.
"""

from __future__ import annotations

import datetime
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNDER_UNIGRAM = 0.25
"""Share of the unigram entropy by which pre-training ends under it."""
POINTS = 0.10
"""Exact match that GRPO adds over SFT."""

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "proofs"
SEEDS = (0, 1, 2)


def llmexp(*lines: str, outputs: Path) -> Path:
    """Run a command to its end; the newest run folder. Raises CalledProcessError when it fails."""
    command = [sys.executable, "-m", "llmexp", *lines, f"paths.outputs={outputs}"]
    print("$", " ".join(["llmexp", *lines]), flush=True)
    subprocess.run(command, check=True, cwd=ROOT)
    runs = [path.parent for path in outputs.glob("runs/*/*/pipeline.json")]
    return max(runs, key=lambda path: json.loads((path / "pipeline.json").read_text())["created"])


def evaluation(run: Path) -> dict[str, Any]:
    """What the run's evaluation measured."""
    link = json.loads((run / "pipeline.json").read_text())["stages"]["evaluate"]
    found: dict[str, Any] = json.loads((Path(link["path"]) / "evaluation.json").read_text())
    return found


def trained_seconds(run: Path, stage: str) -> float:
    """Seconds that a training stage spent in its loop."""
    link = json.loads((run / "pipeline.json").read_text())["stages"][stage]
    manifest = json.loads((Path(link["path"]) / "manifest.json").read_text())
    return float(manifest["summary"]["seconds"])


@dataclass(frozen=True)
class Bar:
    """What has to hold, with the figures that show whether it does."""

    holds: bool
    words: str

    def __str__(self) -> str:
        return f"- {'holds' if self.holds else '**MISSED**'}: {self.words}"


Proof = tuple[str, list[Bar]]
"""The tables of a page, and the bars below them."""


def quickstart(outputs: Path) -> Proof:
    """The quickstart on three seeds, each with a control: as many seconds of SFT as GRPO took."""
    found, times = {}, []
    for seed in SEEDS:
        start = time.monotonic()
        run = llmexp("experiment=quickstart", f"seed={seed}", outputs=outputs)
        times.append(time.monotonic() - start)
        seconds = trained_seconds(run, "grpo")
        control = llmexp(
            "experiment=quickstart", "pipeline=quickstart_control", f"seed={seed}",
            "control.trainer.stop_when=null", "control.trainer.max_steps=null",
            f"control.trainer.max_seconds={seconds:.0f}", outputs=outputs,
        )  # fmt: skip
        found[seed] = evaluation(control)
    clock = ", ".join(f"{t / 60:.1f}" for t in times)
    text = f"{figures_of(found)}\n\nMinutes a seed (the first builds corpus and tokenizer too): {clock}.\n"
    return text, [bar for seed, one in found.items() for bar in quickstart_bars(seed, one)]


def quickstart_long(outputs: Path) -> Proof:
    """The long quickstart on one seed: held-out text costs less than `xz -9` makes of it."""
    start = time.monotonic()
    found = evaluation(llmexp("experiment=quickstart_long", "seed=0", outputs=outputs))
    clock = (time.monotonic() - start) / 60
    ours, xz = bits_per_byte(found, "pretrain"), float(found["baselines"]["xz_bits_per_byte"])
    bar = Bar(ours < xz, f"pre-training ends at {ours:.4f} bits per byte, `xz -9` at {xz:.4f}")
    return f"{figures_of({0: found})}\n\nMinutes: {clock:.1f}.\n", [bar]


def bits_per_byte(found: dict[str, Any], model: str) -> float:
    """Bits per byte of held-out text under a model."""
    return float(found["table"][model]["bits_per_byte"])


def quickstart_bars(seed: int, found: dict[str, Any]) -> list[Bar]:
    """What the quickstart promises, for one seed."""
    table, unigram = found["table"], float(found["baselines"]["unigram_bits_per_byte"])
    under = 1 - bits_per_byte(found, "pretrain") / unigram
    before, after = (float(table[model]["assistant_loss"]) for model in ("pretrain", "sft"))
    sft, control, grpo = (float(table[model]["exact_match"]) for model in ("sft", "control", "grpo"))
    return [
        Bar(under >= UNDER_UNIGRAM, f"seed {seed}: pre-training ends {under:.1%} under the unigram entropy"),
        Bar(after < before, f"seed {seed}: SFT takes the assistant loss from {before:.4f} to {after:.4f}"),
        Bar(grpo - sft >= POINTS, f"seed {seed}: GRPO adds {100 * (grpo - sft):+.1f} points to {sft:.1%}"),
        Bar(grpo > control, f"seed {seed}: GRPO ends at {grpo:.1%}, the control at {control:.1%}"),
    ]


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of ``n`` (Wilson 1927)."""
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - reach, middle + reach


def figures_of(found: dict[int, dict[str, Any]]) -> str:
    """The table of the evaluations by seed, and what the same text costs without a model."""
    n = {int(one["problems"]) for one in found.values()}
    rows = [
        _row(seed, name, figures, int(one["problems"]))
        for seed, one in found.items()
        for name, figures in one["table"].items()
    ]
    words = f"exact match (95 %), n = {', '.join(map(str, sorted(n)))}"
    head = ["seed", "model", "bits per byte", "perplexity", "ECE", "assistant loss", words]
    costs = next(iter(found.values()))["baselines"]
    unigram, xz = float(costs["unigram_bits_per_byte"]), float(costs["xz_bits_per_byte"])
    note = (
        f"Unigram entropy of the same tokens: {unigram:.4f} bits per byte; `xz -9`: {xz:.4f}. "
        "n is the number of held-out problems; the intervals are Wilson's."
    )
    return f"{_table(head, rows)}\n\n{note}"


def _row(seed: int, name: str, figures: dict[str, Any], n: int) -> list[str]:
    keys = ("bits_per_byte", "perplexity", "ece", "assistant_loss")
    cells = [f"{float(figures[key]):.4f}" if key in figures else "" for key in keys]
    share = figures.get("exact_match")
    low, high = wilson(float(share or 0), n) if n else (0.0, 1.0)
    exact = "" if share is None else f"{float(share):.1%} ({low:.1%} to {high:.1%})"
    return [str(seed), name, *cells, exact]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PROOFS: dict[str, Callable[[Path], Proof]] = {"quickstart": quickstart, "quickstart_long": quickstart_long}


def machine() -> str:
    """Commit, date and machine, as a line."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = names[0].partition(":")[2].strip() if names else platform.processor()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"Commit {commit.strip()}, {today}, {len(names)} cores {cpu}, Python {platform.python_version()}."


def main(names: list[str]) -> int:
    """Run the named proofs; exit code 1 for a missed bar, 2 for a name that is none."""
    chosen = list(PROOFS) if names == ["--all"] else names
    unknown = [name for name in chosen if name not in PROOFS]
    if unknown or not chosen:
        print(f"usage: make proof NAME, NAME one of: {', '.join(PROOFS)}", file=sys.stderr)
        return 2
    PAGES.mkdir(parents=True, exist_ok=True)  # now, not after an hour of training
    missed = False
    for name in chosen:
        body, bars = PROOFS[name](ROOT / "outputs" / "proofs" / name)
        about = (PROOFS[name].__doc__ or "").strip()
        page = f"# Proof: {name}\n\n{about}\n\n`make proof {name}`. {machine()}\n\n{body}\n"
        page += "\n".join(map(str, bars)) + "\n"
        (PAGES / f"{name}.md").write_text(page)
        print(page)
        missed = missed or not all(bar.holds for bar in bars)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
