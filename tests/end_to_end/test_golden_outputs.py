"""The same composition gives the same artifacts, from one version of the code to the next.

Whoever changes what a stage makes raises its spec's ``version``, so that no store answers with what
the old code made, and writes the new figures here.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from commands import must, runs, stages, write_notes

from llmexp.corpus.streams import byte_chunks
from llmexp.stage import config
from llmexp.track.runs import read_metrics

GOLDEN = [
    *("experiment=quickstart_debug", "tracking=jsonl", "collect.data=text_files", "collect.data.path=notes"),
    *("collect.data.heldout=0.2", "curate.curation=none", "chats.data.phrasings=0"),
    *("bpe.tokenizer.vocab_size=300", "chats.data.problems.low=0", "chats.data.problems.high=9"),
    *("prompts.data.problems.low=0", "prompts.data.problems.high=9"),
    # Long enough that some sums are right and some wrong: equal rewards would teach GRPO nothing.
    *("sft.trainer.max_steps=80", "sft.trainer.val_every=40", "grpo.trainer.global_batch=64"),
]
"""Every stage on text that is the same on each machine and under each Python."""

NAMED = ("tokenizer.json", "config.json", "generation_config.json")
MEASURED = ("train/loss", "val/loss", "val/bits_per_byte", "rl/reward", "rl/entropy", "train/grad_norm")

DIGESTS: dict[str, tuple[int, str]] = {
    "collect": (2, "22b5970bc2193d7a"),
    "curate": (1, "22b5970bc2193d7a"),
    "bpe": (1, "4dc6bc72f249fac6"),
    "tokens": (2, "e5ecad65cb30dfdf"),
    "chats": (2, "a28b21193c518b54"),
    "chat_tokens": (2, "a3525af608e34f37"),
    "prompts": (2, "b900daeabb906197"),
    "export": (1, "df0b8f0da612d2c9"),
}
"""Stages without arithmetic on floats: version, and a digest of what their artifact's files hold."""

FIGURES: dict[str, tuple[int, dict[str, list[float]]]] = {
    "pretrain": (
        2,
        {
            "train/loss": [5.71852, 5.69446, 5.64148, 5.51134, 5.46763, 5.38464, 5.35889, 5.30182],
            "val/loss": [5.44071, 5.28119],
            "val/bits_per_byte": [3.92158, 3.8066],
            "train/grad_norm": [0.94688, 0.878, 1.05356, 1.32184, 1.46149, 1.42747, 1.43984, 1.43039],
        },
    ),
    "sft": (
        2,
        {
            "train/loss": [
                5.70187,
                5.60067,
                5.55445,
                5.37797,
                5.46557,
                5.34166,
                5.07593,
                5.02555,
                5.02333,
                4.98255,
            ],
            "val/loss": [2.56303, 1.99542],
            "val/bits_per_byte": [7.39534, 5.75755],
            "train/grad_norm": [
                3.15069,
                3.46706,
                4.2003,
                3.52372,
                3.23603,
                3.4737,
                3.415,
                3.31714,
                3.25705,
                3.13012,
            ],
        },
    ),
    "grpo": (
        1,
        {
            "train/loss": [0.00314, 0.01197, 0.01688, 0.0],
            "rl/reward": [0.01562, 0.04688, 0.01562, 0.0],
            "rl/entropy": [2.15367, 2.12227, 2.19601, 2.20707],
            "train/grad_norm": [0.07401, 0.36335, 0.19116, 0.0],
        },
    ),
    "evaluate": (
        1,
        {
            "initial loss": [5.71129],
            "initial ece": [0.00141],
            "pretrain loss": [5.28646],
            "pretrain ece": [0.01607],
            "sft loss": [5.68751],
            "sft ece": [0.06335],
            "grpo loss": [5.68942],
            "grpo ece": [0.06347],
        },
    ),
}
"""Stages that train or measure: version, and figures that hold on every machine but for rounding."""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the golden composition."""
    folder = tmp_path_factory.mktemp("golden")
    write_notes(folder / "notes", 60)
    must(folder, *GOLDEN)
    return runs(folder)[-1]


def artifact_of(run_dir: Path, name: str) -> Path:
    fingerprint = stages(run_dir)[name]["fingerprint"]
    (path,) = (run_dir.parents[2] / "store").glob(f"*/{fingerprint}")
    return path


def digest(artifact: Path) -> str:
    """Of the texts, tokens and vocabularies in an artifact, whatever they were compressed with."""
    whole = hashlib.sha256()
    for file in sorted(artifact.rglob("*")):
        if file.suffix in (".docs", ".tokens", ".mask", ".zst") or file.name in NAMED:
            for chunk in byte_chunks(file):
                whole.update(chunk)
    return whole.hexdigest()[:16]


def figures(run_dir: Path, name: str) -> dict[str, list[float]]:
    """What a training stage logged, or what the evaluation says of each model."""
    if name == "evaluate":
        table = json.loads((artifact_of(run_dir, name) / "evaluation.json").read_text())["table"]
        return {f"{model} {key}": [row[key]] for model, row in table.items() for key in ("loss", "ece")}
    metrics = read_metrics(run_dir / name)
    return {key: metrics[key].values[:10] for key in MEASURED if key in metrics}


def version_of(run_dir: Path, name: str) -> int:
    made = stages(run_dir)[name]["stage"]
    return int(getattr(config, "".join(part.capitalize() for part in made.split("_"))).version)


@pytest.mark.parametrize("name", DIGESTS)
def test_a_stage_makes_the_same_files(run_dir: Path, name: str):
    version, expected = DIGESTS[name]
    assert (version_of(run_dir, name), digest(artifact_of(run_dir, name))) == (version, expected), (
        f"{name} makes something else than before: raise its `version`, then write the new digest here"
    )


@pytest.mark.parametrize("name", FIGURES)
def test_a_stage_gives_the_same_figures(run_dir: Path, name: str):
    version, expected = FIGURES[name]
    assert version_of(run_dir, name) == version
    found = figures(run_dir, name)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, abs=1e-4, rel=1e-3), (
            f"{key} of {name} changed: raise the stage's `version`, then write the new figures here"
        )


def test_every_stage_has_its_figures(run_dir: Path):
    assert stages(run_dir).keys() == DIGESTS.keys() | FIGURES.keys()
