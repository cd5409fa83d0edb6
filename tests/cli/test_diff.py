"""``llmexp diff``."""

from __future__ import annotations

import contextlib
import re

from llmexp.track.journal import Journal


def test_two_runs_differ_in_what_was_set_and_in_what_came_out(world, look):
    a, b = world.run(lr=0.5), world.run(lr=0.25)
    said = look("diff", a, b, "--json").json
    assert said["config"] == {"pretrain.optimizer.lr": {"a": 0.5, "b": 0.25}}
    assert said["inputs"] == {}
    assert said["results"]["pretrain.train/loss"] == {"a": 1.5, "b": 1.25}
    assert said["results"]["pretrain.final_loss"] == {"a": 1.5, "b": 1.25}


def test_both_values_stand_side_by_side_with_their_difference(world, look):
    a, b = world.run(lr=0.5), world.run(lr=0.25)
    line = next(x for x in look("diff", a, b).out.splitlines() if x.startswith("pretrain.train/loss"))
    assert line.split() == ["pretrain.train/loss", "1.5", "1.25", "-0.25"]


def test_other_data_shows_in_configuration_and_inputs(world, look):
    a, b = world.run(text="one"), world.run(text="two")
    said = look("diff", a, b, "--json").json
    assert list(said["config"]) == ["collect.data.path"]
    assert list(said["inputs"]) == ["pretrain.corpus"]


def test_two_stages_are_compared_without_their_names(world, look):
    a, b = world.run(lr=0.5), world.run(lr=0.25)
    assert list(look("diff", f"{a}/pretrain", f"{b}/pretrain", "--json").json["config"]) == ["optimizer.lr"]


def test_a_stage_and_the_artifact_that_it_made_are_equal(world, look):
    run = world.run()
    fingerprint = look("show", "last/pretrain", "--json").json["fingerprint"]
    said = look("diff", run / "pretrain", fingerprint)
    assert said.out.strip() == "equal: configuration, inputs, results"


def test_a_whole_run_is_not_compared_with_a_stage(world, look):
    run = world.run()
    said = look("diff", run, run / "pretrain")
    assert said.code == 2
    assert "/STAGE" in said.err


def test_a_metric_that_only_one_has_is_absent_in_the_other(world, look):
    a, b = world.run(lr=0.5), world.left(lr=0.25, steps=1)
    said = look("diff", a, b, "--json").json
    assert said["results"]["pretrain.final_loss"] == {"a": 1.5, "b": None}


def test_what_only_one_side_has_comes_last_and_is_cut(world, look):
    a, b = world.run(lr=0.5), world.run(lr=0.25)
    for run, value in ((a, 1.0), (b, 2.0)):
        with contextlib.closing(Journal(run / "pretrain" / "journal.jsonl")) as journal:
            journal.metrics({f"both/{number}": value for number in range(50)}, 1)
    with contextlib.closing(Journal(b / "pretrain" / "journal.jsonl")) as journal:
        journal.metrics({f"a/{number}": 1.0 for number in range(50)}, 1)
    out = look("diff", a, b).out
    assert "pretrain.train/loss" in out
    assert all(f"both/{number} " in out for number in range(50))
    assert "pretrain.a/0" not in out
    assert re.search(r"… and \d+ more \(--json lists all\)", out)
    assert len(look("diff", a, b, "--json").json["results"]) > 50
