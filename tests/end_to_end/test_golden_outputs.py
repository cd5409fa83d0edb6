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
    *("chats.data.arithmetic_repeats=8", "grpo.optimizer.lr=3e-4"),
    # Long enough that some sums are right and some wrong: equal rewards would teach GRPO nothing.
    *("sft.trainer.max_steps=80", "sft.trainer.val_every=40", "grpo.trainer.global_batch=64"),
]
"""Every stage on text that is the same on each machine and under each Python."""

NAMED = ("tokenizer.json", "config.json", "generation_config.json")
MEASURED = ("train/loss", "val/loss", "val/bits_per_byte", "rl/reward", "rl/entropy", "train/grad_norm")

DIGESTS: dict[str, tuple[int, str]] = {
    "collect": (3, "22b5970bc2193d7a"),
    "curate": (1, "22b5970bc2193d7a"),
    "bpe": (1, "4dc6bc72f249fac6"),
    "tokens": (2, "e5ecad65cb30dfdf"),
    "chats": (3, "a28b21193c518b54"),
    "chat_tokens": (2, "a3525af608e34f37"),
    "prompts": (3, "b900daeabb906197"),
    "export": (2, "df0b8f0da612d2c9"),
}
"""Stages without arithmetic on floats: version, and a digest of what their artifact's files hold."""

FIGURES: dict[str, tuple[int, dict[str, list[float]]]] = {
    "pretrain": (
        3,
        {
            "train/loss": [5.71852, 5.69447, 5.64149, 5.51136, 5.46774, 5.38468, 5.35898, 5.30192],
            "val/loss": [5.44078, 5.28127],
            "val/bits_per_byte": [3.92163, 3.80666],
            "train/grad_norm": [0.94688, 0.87798, 1.05348, 1.32166, 1.46119, 1.42747, 1.44001, 1.43072],
        },
    ),
    "sft": (
        3,
        {
            "train/loss": [
                5.70177,
                5.60066,
                5.55444,
                5.37795,
                5.46613,
                5.34179,
                5.0761,
                5.02571,
                5.02361,
                4.98325,
            ],
            "val/loss": [2.56223, 1.99421],
            "val/bits_per_byte": [7.39304, 5.75407],
            "train/grad_norm": [
                3.15065,
                3.46712,
                4.20002,
                3.52348,
                3.23474,
                3.47346,
                3.41575,
                3.31693,
                3.25924,
                3.13461,
            ],
        },
    ),
    "grpo": (
        2,
        {
            "train/loss": [0.00321, 0.01203, 0.01688, 0.0],
            "rl/reward": [0.01562, 0.04688, 0.01562, 0.0],
            "rl/entropy": [2.13819, 2.13157, 2.1914, 2.21278],
            "train/grad_norm": [0.07585, 0.35137, 0.20994, 0.0],
        },
    ),
    "evaluate": (
        1,
        {
            "initial loss": [5.71129],
            "initial ece": [0.00141],
            "pretrain loss": [5.28653],
            "pretrain ece": [0.01607],
            "sft loss": [5.69115],
            "sft ece": [0.06364],
            "grpo loss": [5.6907],
            "grpo ece": [0.06312],
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
