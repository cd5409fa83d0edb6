"""``llmexp show``."""

from __future__ import annotations

import pytest


def test_a_run_shows_its_stages_with_their_artifacts(world, look):
    folder = world.run()
    said = look("show", "--json").json
    assert said["what"] == "run"
    assert said["command"] == "llmexp mine"
    assert [stage["kind"] for stage in said["stages"]] == ["corpus", "model"]
    assert folder.name in look("show", "last").out


def test_a_stage_shows_configuration_figures_inputs_and_files(world, look):
    world.run()
    said = look("show", "last/pretrain", "--json").json
    assert said["config"] == {"optimizer": {"lr": 1e-3}, "trainer": {"max_steps": 10}}
    assert said["metrics"]["train/loss"] == 1.001
    assert said["summary"] == {"final_loss": 1.001}
    assert list(said["files"]) == ["model.txt"]
    text = look("show", "last/pretrain").out
    assert "optimizer.lr" in text
    assert "made from" in text


@pytest.mark.parametrize("length", [6, 12, 32])
def test_an_artifact_is_found_by_the_start_of_its_fingerprint(world, look, length):
    world.run()
    fingerprint = look("show", "last/pretrain", "--json").json["fingerprint"]
    said = look("show", fingerprint[:length], "--json").json
    assert (said["what"], said["fingerprint"]) == ("artifact", fingerprint)


def test_an_artifact_is_found_by_its_folder(world, look):
    world.run()
    path = look("show", "last/collect", "--json").json["path"]
    assert look("show", path, "--json").json["kind"] == "corpus"


def test_lineage_goes_back_to_the_first_artifact(world, look):
    world.run()
    said = look("show", "last/pretrain", "--json").json
    (corpus,) = said["lineage"]["corpus"]
    assert corpus["fingerprint"] == said["inputs"]["corpus"][0]
    assert (corpus["kind"], corpus["stage"], corpus["inputs"]) == ("corpus", "collect", {})


def test_a_cached_stage_shows_the_run_that_made_it(world, look):
    first = world.run()
    world.run(lr=2e-3)
    assert look("show", "last/collect", "--json").json["run_dir"] == str(first / "collect")


def test_a_stage_that_has_not_ended_shows_what_it_reads(world, look):
    world.left()
    said = look("show", "last/pretrain", "--json").json
    assert said["inputs"]["corpus"] == [look("show", "last/collect", "--json").json["fingerprint"]]
    assert said["files"] == {}


def test_a_folder_of_something_else_is_not_taken_for_a_run_whose_name_is_like_it(
    world, look, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    world.run()
    assert look("show", "mine").code == 0
    (tmp_path / "mine").mkdir()
    for verb in ("show", "chat"):
        said = look(verb, "mine")
        assert said.code == 2
        assert "mine" in said.err
        assert "is a folder" in said.err


def test_a_job_of_a_sweep_is_found_by_its_whole_name_though_another_begins_with_it(world, look):
    sweep = world.outputs / "sweeps" / "2026-01-31" / "12-00-00"
    for job in ("1", "10"):
        world.run(folder=sweep / job)
    said = look("show", "sweeps/2026-01-31/12-00-00/1", "--json").json
    assert said["run"] == "sweeps/2026-01-31/12-00-00/1"


def test_what_is_neither_run_nor_artifact_is_a_mistake(world, look):
    world.run()
    said = look("show", "nothing-like-it")
    assert said.code == 2
    assert "neither a run nor an artifact" in said.err
