"""``llmexp status``."""

from __future__ import annotations

from llmexp.launch.status import TAIL, latest
from llmexp.track.journal import Journal


def test_runs_are_shown_newest_last_with_their_stages(world, look):
    world.run()
    world.run(lr=2e-3)
    runs = look("status", "--json").json["runs"]
    assert [run["state"] for run in runs] == ["done", "done"]
    assert runs[0]["created"] < runs[1]["created"]
    assert [stage["name"] for stage in runs[1]["stages"]] == ["collect", "pretrain"]
    text = look("status").out
    assert text.index(runs[0]["run"]) < text.index(runs[1]["run"])


def test_a_stage_found_in_the_store_is_called_cached(world, look):
    world.run()
    world.run(lr=2e-3)
    collect = look("status", "--json").json["runs"][1]["stages"][0]
    assert collect["state"] == "done"
    assert collect["cached"]


def test_a_running_stage_shows_step_loss_speed_and_time_left(world, look):
    world.run(end="left", pause=0.01)
    run = look("status", "--json").json["runs"][0]
    stage = run["stages"][1]
    assert run["state"] == stage["state"] == "running"
    assert (stage["step"], stage["tokens_per_second"]) == (5, 5000.0)
    assert stage["loss"] == 5.0 / 5 + 1e-3
    assert 4.9 * 0.01 <= stage["seconds_left"] <= 5 * 0.2


def test_a_policys_stage_shows_its_reward(world, look):
    journal = Journal(world.run() / "pretrain" / "journal.jsonl")
    journal.metrics({"rl/reward": 0.75}, 5)
    journal.close()
    stage = look("status", "--json").json["runs"][0]["stages"][1]
    assert stage["reward"] == 0.75
    assert "reward 0.75" in look("status").out


def test_a_run_whose_process_is_gone_is_killed(world, look):
    world.left()
    run = look("status", "--json").json["runs"][0]
    assert run["state"] == run["stages"][1]["state"] == "KILLED"
    assert run["stages"][0]["state"] == "done"


def test_a_failed_stage_shows_its_error(world, look):
    world.run(end="failed")
    assert "ValueError: the loss is not finite" in look("status").out


def test_only_the_last_ten_are_shown_unless_all_are_asked_for(world, look):
    for index in range(11):
        world.run(lr=float(index), steps=1)
    assert len(look("status", "--json").json["runs"]) == 10
    assert "1 earlier run" in look("status").out
    assert len(look("status", "--all", "--json").json["runs"]) == 11


def test_without_runs_it_says_how_to_start_one(look):
    assert "llmexp experiment=quickstart" in look("status").out


def test_a_named_folder_that_does_not_exist_is_a_mistake(llmexp):
    said = llmexp("status", "--outputs", "no/such/folder")
    assert said.code == 2
    assert "no/such/folder" in said.err


def test_the_default_folder_is_that_of_the_default_composition(llmexp):
    from llmexp.store.config import PathsSpec

    node = llmexp("config", "paths=default", "--json").json["nodes"][0]
    values = {field["key"]: field["value"] for field in node["fields"]}
    assert values["outputs"] == PathsSpec().outputs
    assert values["store"] == f'["{PathsSpec().outputs}/store"]'


def test_a_long_journal_is_read_at_its_end_alone(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    for step in range(1, 12_001):
        journal.metrics({"train/loss": float(step), "perf/tokens_per_second": 1.0}, step)
    journal.close()
    assert (tmp_path / "journal.jsonl").stat().st_size > TAIL
    found = latest(tmp_path / "journal.jsonl")
    assert (found.step, found.values["train/loss"]) == (12_000, 12_000.0)
