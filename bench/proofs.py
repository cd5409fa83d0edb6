"""Whole tables of proofs: ``python -m bench.proofs NAME`` runs one and writes ``docs/proofs/NAME.md``."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
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


def quickstart(outputs: Path) -> str:
    """The quickstart on three seeds, each with a control: as many seconds of SFT as GRPO took."""
    rows, times = [], []
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
        found = evaluation(control)
        rows += [_row(seed, name, figures) for name, figures in found["table"].items()]
        baselines = found["baselines"]
    head = ["seed", "model", "bits per byte", "perplexity", "ECE", "assistant loss", "exact match"]
    text = _table(head, rows)
    bars = _verdicts(rows, baselines)
    clock = ", ".join(f"{t / 60:.1f}" for t in times)
    return f"{text}\n\nMinutes a seed (the first builds corpus and tokenizer too): {clock}.\n\n{bars}\n"


def _row(seed: int, name: str, figures: dict[str, Any]) -> list[str]:
    keys = ("bits_per_byte", "perplexity", "ece", "assistant_loss", "exact_match")
    return [str(seed), name, *(f"{float(figures[key]):.4f}" if key in figures else "" for key in keys)]


def _verdicts(rows: list[list[str]], baselines: dict[str, Any]) -> str:
    unigram, xz = float(baselines["unigram_bits_per_byte"]), float(baselines["xz_bits_per_byte"])
    lines = [f"Unigram entropy of the same tokens: {unigram:.4f} bits per byte; `xz -9`: {xz:.4f}.", ""]
    for seed in map(str, SEEDS):
        of = {row[1]: row for row in rows if row[0] == seed}
        under = 1 - float(of["pretrain"][2]) / unigram
        sft, control, grpo = (float(of[name][6]) for name in ("sft", "control", "grpo"))
        lines.append(
            f"- seed {seed}: pretrain ends {under:.1%} under the unigram entropy; exact match "
            f"{sft:.1%} after SFT, {control:.1%} with the control, "
            f"{grpo:.1%} after GRPO ({100 * (grpo - sft):+.1f} points)"
        )
    return "\n".join(lines)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PROOFS: dict[str, Callable[[Path], str]] = {"quickstart": quickstart}


def machine() -> str:
    """Commit, date and machine, as a line."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = names[0].partition(":")[2].strip() if names else platform.processor()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"Commit {commit.strip()}, {today}, {len(names)} cores {cpu}, Python {platform.python_version()}."


def main(names: list[str]) -> int:
    """Run the named proofs; exit code 2 for a name that is none."""
    chosen = list(PROOFS) if names == ["--all"] else names
    unknown = [name for name in chosen if name not in PROOFS]
    if unknown or not chosen:
        print(f"usage: make proof NAME, NAME one of: {', '.join(PROOFS)}", file=sys.stderr)
        return 2
    pages = ROOT / "docs" / "proofs"
    pages.mkdir(parents=True, exist_ok=True)  # now, not after an hour of training
    for name in chosen:
        body = PROOFS[name](ROOT / "outputs" / "proofs" / name)
        about = (PROOFS[name].__doc__ or "").strip()
        page = f"# Proof: {name}\n\n{about}\n\n`make proof {name}`. {machine()}\n\n{body}"
        (pages / f"{name}.md").write_text(page)
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
