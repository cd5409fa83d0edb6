"""``llmexp logs``."""

from __future__ import annotations

import json

from llmexp.launch.logs import Log, follow
from llmexp.stage.runs import new_folder


def test_entries_of_all_stages_come_in_the_order_of_time(world, look):
    world.run()
    entries = [json.loads(line) for line in look("logs", "last", "--json").out.splitlines()]
    assert entries == sorted(entries, key=lambda entry: entry["time"])
    assert {entry["stage"] for entry in entries} == {"pipeline", "collect", "pretrain"}
    assert [entry["step"] for entry in entries if entry["kind"] == "metrics"] == [1, 2, 3, 4, 5]


def test_one_stage_can_be_chosen_in_two_ways(world, look):
    world.run()
    by_flag, by_path = look("logs", "last", "--stage", "pretrain"), look("logs", "last/pretrain")
    assert by_flag.out == by_path.out
    assert "step 5  train/loss 1.001" in by_path.out
    assert "collect" not in by_path.out


def test_only_the_last_lines_are_printed_when_asked(world, look):
    world.run()
    assert len(look("logs", "last/pretrain", "-n", "2").out.splitlines()) == 2


def test_the_error_of_a_failed_stage_is_printed(world, look):
    world.run(end="failed")
    assert "pretrain failed:\nTraceback, most recent call last\nValueError: the loss" in look("logs").out


def test_an_unknown_stage_is_named_with_the_nearest(world, look):
    world.run()
    said = look("logs", "last", "--stage", "pretrian")
    assert said.code == 2
    assert "Did you mean 'pretrain'?" in said.err


def test_an_unknown_run_is_a_mistake_that_lists_runs(world, look):
    folder = world.run()
    said = look("logs", "nothing-like-it")
    assert said.code == 2
    assert folder.name in said.err


def test_following_ends_with_the_run_and_misses_nothing(world, look):
    folder = new_folder(world.outputs / "runs", "mine")
    process = world.elsewhere(folder=folder, steps=8, pause=0.1)
    while not (folder / "pipeline.json").is_file():
        process.join(0.01)
    said = look("logs", folder, "-f", "--json")
    process.join()
    entries = [json.loads(line) for line in said.out.splitlines()]
    assert [e["step"] for e in entries if e["kind"] == "metrics"] == list(range(1, 9))
    assert [e["kind"] for e in entries if e["stage"] == "pipeline"] == ["start", "end"]


def test_following_goes_on_across_a_restart(world):
    folder = world.left(steps=3)
    told, steps, process = [], [], None

    def say(text):
        nonlocal process
        told.append(text)
        process = world.elsewhere(folder=folder, steps=6)

    for entry in follow(Log(folder), say, poll=0.05):
        steps += [entry.step] if entry.kind == "metrics" else []
    process.join()
    assert steps == [1, 2, 3, 4, 5, 6]
    assert len(told) == 1
    assert "KILLED" in told[0]
