"""``llmexp store``."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.stage.runs import PipelineRecord
from llmexp.store.artifact import Artifact
from llmexp.store.errors import Damaged


def model_of(run_dir: Path, look) -> Artifact:
    return Artifact.load(Path(look("show", run_dir / "pretrain", "--json").json["path"]))


def fingerprints(look) -> set[str]:
    return {one["fingerprint"] for one in look("store", "list", "--json").json["artifacts"]}


def test_artifacts_are_listed_by_kind(world, look):
    world.run()
    world.run(lr=2e-3)
    assert [one["kind"] for one in look("store", "list", "--json").json["artifacts"]] == [
        "corpus",
        "model",
        "model",
    ]
    assert len(look("store", "list", "model", "--json").json["artifacts"]) == 2
    assert "3 artifacts" in look("store", "list").out


def test_an_unknown_kind_is_a_mistake_that_lists_those_there_are(world, look):
    world.run()
    said = look("store", "list", "models")
    assert said.code == 2
    assert "corpus, model" in said.err


def test_show_is_that_of_llmexp_show(world, look):
    artifact = model_of(world.run(), look)
    assert (
        look("store", "show", artifact.fingerprint, "--json").json
        == look("show", artifact.fingerprint, "--json").json
    )


def test_a_whole_store_is_verified_by_reading_every_file(world, look):
    artifact = model_of(world.run(), look)
    assert look("store", "verify").code == 0
    (artifact.path / "model.txt").write_text("w3ights")
    said = look("store", "verify", "--json")
    assert said.code == 1
    assert [(d["fingerprint"], d["file"]) for d in said.json["damaged"]] == [
        (artifact.fingerprint, "model.txt")
    ]


def test_the_command_that_a_damage_names_sets_it_aside_and_says_how_to_build_it(world, look):
    artifact = model_of(world.run(), look)
    (artifact.path / "model.txt").write_text("short")
    with pytest.raises(Damaged) as caught:
        artifact.file("model.txt")
    command = str(caught.value).split("`")[1]
    assert command == f"llmexp store verify {artifact.fingerprint} --rebuild"
    said = look(*command.split()[1:])
    assert said.code == 0
    assert "llmexp mine" in said.out
    assert not artifact.path.exists()
    assert look("store", "verify").code == 0


def test_an_artifact_with_a_broken_manifest_can_be_set_aside(world, look):
    artifact = model_of(world.run(), look)
    (artifact.path / "manifest.json").write_text("{")
    assert look("store", "verify", artifact.fingerprint).code == 1
    assert look("store", "verify", artifact.fingerprint, "--rebuild").code == 0
    assert artifact.fingerprint not in fingerprints(look)


def test_prune_keeps_what_runs_refer_to_and_what_that_was_made_from(world, look):
    kept, gone = world.run(), world.run(text="other")
    lost = {model_of(gone, look).fingerprint, look("show", gone / "collect", "--json").json["fingerprint"]}
    assert look("store", "prune", "--yes", "--json").json["items"] == []
    shutil.rmtree(gone)
    before = fingerprints(look)
    assert look("store", "prune", "--yes", "--json").json["removed"]
    assert before - fingerprints(look) == lost
    assert look("store", "verify").code == 0
    assert model_of(kept, look).file("model.txt").read_text() == "weights"


def test_prune_keeps_the_inputs_of_a_run_that_was_left(world, look):
    world.left()
    look("store", "prune", "--yes")
    assert [one["kind"] for one in look("store", "list", "--json").json["artifacts"]] == ["corpus"]


def test_a_dry_run_removes_nothing(world, look):
    shutil.rmtree(world.run())
    said = look("store", "prune", "--dry-run", "--json").json
    assert not said["removed"]
    assert len(said["items"]) == len(fingerprints(look)) == 2


def test_without_a_terminal_prune_asks_for_yes(world, look):
    shutil.rmtree(world.run())
    said = look("store", "prune")
    assert said.code == 2
    assert "--yes" in said.err
    assert len(fingerprints(look)) == 2


@pytest.mark.parametrize("answer, left", [(b"n\n", 2), (b"y\n", 0)])
def test_on_a_terminal_prune_asks_first(world, look, answer, left):
    shutil.rmtree(world.run())
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "llmexp", "store", "prune", "--outputs", str(world.outputs)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.write(ours, answer)
    assert process.wait(60) == 0
    os.close(theirs)
    os.close(ours)
    assert len(fingerprints(look)) == left


def test_a_run_in_a_folder_of_its_own_is_kept_by_name(world, look, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    world.run(folder=elsewhere)
    assert len(look("store", "prune", "--dry-run", "--json").json["items"]) == 2
    assert look("store", "prune", "--dry-run", "--keep", elsewhere, "--json").json["items"] == []


def test_unfinished_work_in_a_folder_of_its_own_is_kept(world, look, tmp_path):
    from llmexp.stage.runs import Unfinished

    elsewhere = tmp_path / "elsewhere"
    world.run(folder=elsewhere)
    Unfinished(world.store.root).put("pipeline-0", elsewhere)
    assert look("store", "prune", "--dry-run", "--json").json["items"] == []


def test_the_runs_of_a_sweep_are_kept(world, look):
    world.run(folder=world.outputs / "sweeps" / "2026-01-31" / "12-00-00" / "0")
    assert look("store", "prune", "--dry-run", "--json").json["items"] == []


def test_what_a_command_gave_to_a_stage_that_has_not_begun_is_kept(world, look):
    artifact = model_of(world.run(), look)
    run = world.run(text="other")
    record = PipelineRecord.read(run)
    record.overrides = [f"sft.inputs.model={artifact.fingerprint[:10]}"]
    record.write(run)
    shutil.rmtree(artifact_run(artifact, world))
    assert look("store", "prune", "--dry-run", "--json").json["items"] == []


def artifact_run(artifact: Artifact, world) -> Path:
    return (world.outputs / "runs" / artifact.manifest.run_id).parent
