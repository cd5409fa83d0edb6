"""What a resume refuses, and what it takes: cases H01, H04 and G04 as commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import SMALL, must, run, runs, would_run

INPUTS = Path(__file__).parents[1] / "cases" / "inputs"


def step_of(folder: Path, step: int) -> Path:
    """A checkpoint of the folder's pretraining."""
    return next(folder.glob(f"outputs/runs/*/*/pretrain/checkpoints/step-{step:08d}"))


def step_in(run_dir: Path, step: int) -> Path:
    """A checkpoint of one training stage's run."""
    return run_dir / "checkpoints" / f"step-{step:08d}"


def resumed_at(run_dir: Path) -> list[int]:
    """The steps at which a run's pretraining went on from a checkpoint."""
    events = [json.loads(line) for line in (run_dir / "pretrain" / "journal.jsonl").read_text().splitlines()]
    return [event["fields"]["step"] for event in events if event.get("event") == "resume"]


def test_a_checkpoint_that_is_not_there_is_a_mistake_and_leaves_no_run(done_once):
    before = runs(done_once)
    done = run(done_once, *SMALL, "seed=5", "trainer.resume=/no/such/step-20")
    assert done.returncode == 2
    assert "/no/such/step-20" in done.stderr
    assert runs(done_once) == before


def test_a_half_written_checkpoint_given_by_path_is_refused_by_name(again):
    half = again / "half" / "step-00000008"
    shutil.copytree(step_of(again, 8), half)
    tensors = half / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:1000])
    done = run(again, *SMALL, "trainer.max_steps=12", f"trainer.resume={half}")
    assert done.returncode in (1, 2)
    assert "model.safetensors" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_newest_whole_checkpoint_of_a_folder_is_taken_and_the_half_one_named_and_kept(again):
    words = [*SMALL, "scheduler=constant"]
    must(again, *words)
    shorter = runs(again)[-1] / "pretrain"
    tensors = shorter / "checkpoints" / "step-00000008" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:1000])
    done = must(again, *words, "trainer.max_steps=12", f"trainer.resume={shorter}")
    assert str(tensors) in done.stderr
    assert tensors.stat().st_size == 1000
    assert resumed_at(runs(again)[-1]) == [4]


def test_a_checkpoint_of_another_model_is_refused_with_what_differs(again):
    words = ["model.d_model=64", f"trainer.resume={step_of(again, 8)}"]
    done = run(again, *SMALL, *words)
    assert done.returncode == 2, done.stderr
    assert "feed_forward.down.weight is (32, 64) in the checkpoint and (64, 64) in the model" in done.stderr


def test_a_checkpoint_of_another_run_is_part_of_what_the_artifact_is(again):
    must(again, *SMALL, "seed=1")
    other = runs(again)[-1] / "pretrain"
    resumed = ["seed=2", f"trainer.resume={other}"]
    must(again, *SMALL, *resumed)
    assert would_run(again, *SMALL, "seed=2") == ["pretrain"]
    assert would_run(again, *SMALL, *resumed) == []
    assert would_run(again, *SMALL, "seed=2", f"trainer.resume={step_in(other, 8)}") == []


def test_a_checkpoint_of_the_same_artifacts_own_run_is_what_auto_takes(again):
    own = runs(again)[-1] / "pretrain"
    assert would_run(again, *SMALL, f"trainer.resume={own}") == []
    copied = again / "copied"
    shutil.copytree(step_in(own, 8), copied / "step-00000008")
    assert would_run(again, *SMALL, f"trainer.resume={copied}") == ["pretrain"]


def test_a_first_start_says_that_there_is_no_checkpoint(done_once):
    (journal,) = done_once.glob("outputs/runs/*/*/pretrain/journal.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["fields"]["step"] for event in events if event.get("event") == "begin"] == [0]


@pytest.fixture
def long_prompts(again: Path) -> Path:
    """A folder with conversations whose prompts are longer than the context."""
    rows = [json.loads(line) for line in (INPUTS / "g04_long_prompt.jsonl").read_text().splitlines()]
    with (again / "chats.jsonl").open("w") as file:
        for row in rows * 8:
            turns = [("user", row["prompt"]), ("assistant", row["completion"])]
            messages = [{"role": role, "content": text} for role, text in turns]
            file.write(json.dumps({"messages": messages}) + "\n")
    return again


def test_conversations_in_which_nothing_counts_end_the_command_before_training(long_prompts):
    words = [
        *("pipeline=sft", "collect.data=text_files", "collect.data.path=notes", "collect.data.heldout=0.2"),
        *("tokenizer.vocab_size=300", "model=debug", "trainer=debug", "pretrain.loader.seq_len=64"),
        *("chats.data=chat_jsonl", "chats.data.path=chats.jsonl", "chats.data.heldout=0.5"),
        *("sft.loader.seq_len=16", "sft.loader.packing=pad", "tracking=none"),
    ]
    done = run(long_prompts, *words)
    assert done.returncode == 1, done.stderr
    assert "none within" in done.stderr
    assert not list(long_prompts.glob("outputs/runs/*/*/sft/checkpoints/step-*"))
    assert "seq_len" in done.stderr


def test_a_sound_checkpoint_starts_a_longer_run(again):
    words = ["trainer.max_steps=12", "scheduler=constant"]
    first = must(again, *SMALL, "trainer.max_steps=8", "scheduler=constant")
    assert first.returncode == 0
    newest = runs(again)[-1] / "pretrain"
    must(again, *SMALL, *words, f"trainer.resume={newest}")
    assert resumed_at(runs(again)[-1]) == [8]
