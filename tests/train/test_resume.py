"""Resume equals uninterrupted, bit for bit."""

import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_training as tiny

from llmexp.track.journal import read_records
from llmexp.track.progress import Interrupted
from llmexp.train.checkpoint import read_checkpoint
from llmexp.train.config import AdamWSpec, ConstantSpec, CosineSpec, MuonSpec, StopWhen, WSDSpec
from llmexp.train.errors import BrokenCheckpoint, ResumeMistake

PROGRAM = Path(__file__).parent / "kill_and_resume.py"


def stop_after(steps):
    """Something for ``should_stop`` that says yes after so many steps."""
    asked = iter(range(1, 10**9))
    return lambda: next(asked) >= steps


def run_program(folder, kills, seed):
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(kills), str(seed)],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def series(run_dir):
    values = {}
    for record, _ in read_records(run_dir / "journal.jsonl"):
        for key, value in record.get("m", {}).items():
            if not key.startswith("perf/"):
                assert (key, record["s"]) not in values, "a (key, step) was journaled twice"
                values[key, record["s"]] = value
    return values


def test_killed_at_random_moments_every_loss_and_the_weights_are_those_of_the_uninterrupted_run(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    run_program(tmp_path, kills=6, seed=seed)
    assert (tmp_path / "killed" / "hash").read_text() == (tmp_path / "whole" / "hash").read_text()
    assert series(tmp_path / "killed") == series(tmp_path / "whole")


@pytest.mark.parametrize("optimizer", [AdamWSpec(lr=1e-2), MuonSpec()], ids=["adamw", "muon"])
def test_interrupted_and_resumed_with_dropout_equals_uninterrupted(tmp_path, optimizer):
    arguments = {"optimizer": optimizer, "scheduler": CosineSpec(warmup_steps=2)}
    whole, joined = tiny.Recorder(), tiny.Recorder()
    expected = tiny.train(tmp_path / "a", model=tiny.model(dropout=0.2), tracker=whole, **arguments)
    with pytest.raises(Interrupted):
        tiny.train(
            tmp_path / "b",
            model=tiny.model(dropout=0.2),
            tracker=joined,
            should_stop=stop_after(7),
            **arguments,
        )
    result = tiny.train(tmp_path / "b", model=tiny.model(dropout=0.2), tracker=joined, **arguments)
    assert result.weights_hash == expected.weights_hash
    for key in ("train/loss", "train/grad_norm", "train/lr"):
        assert joined.values[key] == whole.values[key]


def test_each_step_s_data_is_asked_for_once_and_in_order_over_a_restart(tmp_path):
    first, second = tiny.Sequences(), tiny.Sequences()
    with pytest.raises(Interrupted, match="step 7"):
        tiny.train(tmp_path, source=first, should_stop=stop_after(7))
    tiny.train(tmp_path, source=second)
    assert first.asked + second.asked == list(range(12))


def test_a_finished_run_started_again_trains_no_further(tmp_path):
    first = tiny.train(tmp_path)
    source = tiny.Sequences()
    again = tiny.train(tmp_path, model=tiny.model(seed=5), source=source)
    assert source.asked == []
    assert again.weights_hash == first.weights_hash


def test_without_a_checkpoint_auto_says_so_and_starts_at_0(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        tiny.train(tmp_path)
    assert "no checkpoint, starting at step 0" in caplog.text


def test_never_starts_from_nothing_although_there_is_a_checkpoint(tmp_path):
    tiny.train(tmp_path, trainer=tiny.trainer(max_steps=4))
    source = tiny.Sequences()
    tiny.train(tmp_path, source=source, trainer=tiny.trainer(max_steps=4, resume="never"))
    assert source.asked == [0, 1, 2, 3]


def test_a_run_begun_anew_is_gone_on_with_and_what_it_left_is_kept_under_another_name(tmp_path, caplog):
    tiny.train(tmp_path)
    first, second = tiny.Sequences(), tiny.Sequences()
    with pytest.raises(Interrupted, match="step 6"):
        tiny.train(
            tmp_path,
            source=first,
            should_stop=stop_after(6),
            trainer=tiny.trainer(resume="never", max_steps=10),
        )
    tiny.train(tmp_path, source=second, trainer=tiny.trainer(max_steps=10))
    assert first.asked + second.asked == list(range(10))
    left = tmp_path / "checkpoints" / "aside-step-00000012-1"
    assert read_checkpoint(left).step == 12
    assert left.name in caplog.text


def test_auto_takes_the_newest_whole_checkpoint_names_the_broken_one_and_keeps_it(tmp_path, caplog):
    expected = tiny.train(tmp_path)
    half = tmp_path / "checkpoints" / "step-00000012" / "model.safetensors"
    half.write_bytes(half.read_bytes()[:100])
    source = tiny.Sequences()
    result = tiny.train(tmp_path, source=source)
    assert str(half) in caplog.text
    assert source.asked == [8, 9, 10, 11]
    assert result.weights_hash == expected.weights_hash
    aside = tmp_path / "checkpoints" / "aside-step-00000012-1" / "model.safetensors"
    assert aside.stat().st_size == 100


def test_a_path_that_is_missing_is_a_mistake_that_names_it(tmp_path):
    with pytest.raises(ResumeMistake, match="/no/such/step-20") as caught:
        tiny.train(tmp_path, trainer=tiny.trainer(resume="/no/such/step-20"))
    assert caught.value.exit_code == 2


def test_a_path_to_a_broken_checkpoint_names_the_file(tmp_path):
    broken = tmp_path / "step-20"
    broken.mkdir()
    (broken / "weights.safetensors").write_bytes(b"half")
    with pytest.raises(BrokenCheckpoint, match=r"step-20/manifest.json"):
        tiny.train(tmp_path / "run", trainer=tiny.trainer(resume=str(broken)))


def test_a_run_folder_as_path_means_its_highest_step_not_its_newest_file(tmp_path):
    tiny.train(tmp_path / "a")
    older = tmp_path / "a" / "checkpoints" / "step-00000008"
    os.utime(older)
    tracker = tiny.Recorder()
    tiny.train(
        tmp_path / "b", tracker=tracker, trainer=tiny.trainer(max_steps=13, resume=str(tmp_path / "a"))
    )
    assert tracker.events[0][1]["step"] == 12


def test_another_model_s_checkpoint_names_the_keys_that_differ(tmp_path):
    tiny.train(tmp_path)
    with pytest.raises(
        ResumeMistake, match=r"attention.q.weight is \(16, 16\) in the checkpoint and \(8, 8\)"
    ):
        tiny.train(tmp_path, model=tiny.model(d_model=8))


def test_another_optimizer_s_checkpoint_is_refused(tmp_path):
    tiny.train(tmp_path)
    with pytest.raises(ResumeMistake, match="MuonSpec"):
        tiny.train(tmp_path, optimizer=MuonSpec())


@pytest.mark.parametrize(
    "scheduler,goes_on",
    [(ConstantSpec(warmup_steps=2), True), (WSDSpec(decay_fraction=0.2), True), (CosineSpec(), False)],
    ids=["constant", "wsd", "cosine"],
)
def test_a_longer_run_goes_on_where_its_past_rates_would_have_been_the_same(tmp_path, scheduler, goes_on):
    tiny.train(tmp_path / "a", scheduler=scheduler, trainer=tiny.trainer(keep_checkpoints=9))
    at = str(tmp_path / "a" / "checkpoints" / "step-00000008")
    longer = tiny.trainer(max_steps=20, resume=at)
    if goes_on:
        assert tiny.train(tmp_path / "b", scheduler=scheduler, trainer=longer).steps == 20
    else:
        with pytest.raises(ResumeMistake, match="learning rate"):
            tiny.train(tmp_path / "b", scheduler=scheduler, trainer=longer)


def test_a_checkpoint_tells_the_samples_consumed_and_the_step(tmp_path):
    tiny.train(tmp_path)
    position = read_checkpoint(tmp_path / "checkpoints" / "step-00000008").state["position"]
    assert (position["step"], position["samples"], position["tokens"]) == (8, 32, 32 * tiny.SEQ)


def test_the_best_of_another_run_is_forgotten_since_its_weights_lie_there(tmp_path):
    settings = {
        "keep_checkpoints": 9,
        "checkpoint_every": 4,
        "val_every": 2,
        "stop_when": StopWhen.val_loss_rises,
        "patience": 99,
    }
    held_out = iter([1.0, 0.5, 2.0, 2.0])
    first = tiny.train(
        tmp_path / "a",
        trainer=tiny.trainer(max_steps=8, **settings),
        validate=lambda _model: {"val/loss": next(held_out)},
    )
    assert (first.best_val, first.best_step) == (0.5, 4)
    at = str(tmp_path / "a" / "checkpoints" / "step-00000008")
    second = tiny.train(
        tmp_path / "b",
        trainer=tiny.trainer(max_steps=12, resume=at, **settings),
        validate=lambda _model: {"val/loss": 1.5},
    )
    assert (second.best_val, second.best_step) == (1.5, 10)
