"""What makes a stage run again, and what does not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from commands import CHECKOUT, SMALL, artifacts, built, must, run, runs, would_run, write_notes

STAGES = ["collect", "curate", "bpe", "tokens", "pretrain"]

CHANGES = [
    ("data.heldout=0.3", STAGES),
    ("data.kind=code", STAGES),
    ("curation=web", STAGES[1:]),
    ("curate.curation.steps.gopher.min_words=11", STAGES[1:]),
    ("tokenizer.vocab_size=310", STAGES[2:]),
    ("pretrain.loader.seq_len=32", STAGES[4:]),
    ("optimizer.lr=1e-2", STAGES[4:]),
    ("trainer.max_steps=9", STAGES[4:]),
    ("seed=1", STAGES[4:]),
]
"""A change, and the stages that it makes run again."""

SAME = [
    "tracking=none",
    "tracking=mlflow",
    "launcher=processes launcher.gpus_per_node=2 parallel=ddp parallel.dp_replicate=2",
    "curate.workers=2",
    "tokens.workers=2",
    "loader.workers=0",
    "trainer.micro_batch=1",
    "trainer.checkpoint_every=2",
    "trainer.activation_checkpointing=block",
    "hardware=cpu",
    "trainer.device=cpu",
]
"""Changes that cannot change what comes out."""


@pytest.mark.parametrize("change, want", CHANGES, ids=[change for change, _ in CHANGES])
def test_a_changed_value_runs_its_stage_and_those_after_it(done_once, change, want):
    assert would_run(done_once, *SMALL, change) == want


@pytest.mark.parametrize("change", SAME)
def test_what_cannot_change_the_result_runs_nothing(done_once, change):
    assert would_run(done_once, *SMALL, *change.split()) == []


def test_a_stage_that_changed_is_the_only_one_that_runs(again):
    must(again, *SMALL, "optimizer.lr=1e-2")
    assert built(runs(again)[-1]) == ["pretrain"]


def test_a_changed_file_runs_everything_again(again):
    (again / "notes" / "00.txt").write_text("The river is another one today, and that is all.")
    assert would_run(again, *SMALL) == STAGES


def test_a_touched_file_runs_nothing(again):
    os.utime(again / "notes" / "00.txt", (1, 1))
    assert would_run(again, *SMALL) == []


def test_the_same_text_in_another_place_runs_nothing(again, tmp_path):
    moved = tmp_path / "elsewhere" / "notes"
    moved.parent.mkdir()
    (again / "notes").rename(moved)
    words = [word if word != "data.path=notes" else f"data.path={moved}" for word in SMALL]
    assert would_run(again, *words) == []


def test_another_checkout_of_the_code_runs_nothing(done_once, tmp_path):
    for name in ("llmexp", "hydra_plugins", "conf"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert would_run(done_once, *SMALL, package_at=tmp_path) == []


def test_another_current_folder_runs_nothing(done_once, tmp_path):
    words = [word if word != "data.path=notes" else f"data.path={done_once / 'notes'}" for word in SMALL]
    assert would_run(tmp_path, *words, f"paths.outputs={done_once / 'outputs'}") == []


def test_a_team_store_is_read_and_not_written(done_once, tmp_path):
    team = done_once / "outputs" / "store"
    before = sorted(Path(team).rglob("manifest.json"))
    words = [word if word != "data.path=notes" else f"data.path={done_once / 'notes'}" for word in SMALL]
    must(tmp_path, *words, "optimizer.lr=2e-2", f"paths.store=[outputs/store,{team}]")
    assert built(runs(tmp_path)[-1]) == ["pretrain"]
    assert sorted(Path(team).rglob("manifest.json")) == before


def test_a_damaged_input_is_named_before_anything_is_learned_from_it(again):
    (shards,) = artifacts(again, "shards")
    tokens = shards / "train" / "00000.tokens"
    content = bytearray(tokens.read_bytes())
    content[len(content) // 2] ^= 1
    tokens.chmod(0o644)
    tokens.write_bytes(content)
    done = run(again, *SMALL, "optimizer.lr=1e-2")
    assert done.returncode == 1
    assert "train/00000.tokens" in done.stderr
    assert "SHA-256" in done.stderr


def test_several_inputs_of_shards_are_mixed_by_weight(again):
    write_notes(again / "more", 40)
    (tokenizer,), (first,) = artifacts(again, "tokenizer"), artifacts(again, "shards")
    given = f"inputs.tokenizer={tokenizer.name}"
    more = ["data=text_files", "data.path=more", "data.heldout=0.2", "tracking=none"]
    must(again, "stage=tokenize", *more, given)
    (second,) = set(artifacts(again, "shards")) - {first}
    both = [f"inputs.shards='{first.name},{second.name}'", "loader.mixture=[3,1]"]
    must(again, "stage=pretrain", *SMALL[4:], given, *both)
    assert built(runs(again)[-1]) == ["pretrain"]
    made = [json.loads((path / "manifest.json").read_text()) for path in artifacts(again, "model")]
    assert [first.name, second.name] in [manifest["inputs"]["shards"] for manifest in made]
