"""What a run leaves of Hydra's, and what its saved lines give again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from llmexp.cli.compose import compose as compose_all
from llmexp.config.spec import as_data
from llmexp.stage.locate import locate
from llmexp.store.store import Store
from llmexp.track.masking import hidden, mask_of

SECRET = "a-secret-of-the-environment"


@pytest.fixture
def notes(tmp_path, monkeypatch) -> Path:
    """A folder of texts beside which a person works."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my notes"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"note {number}\n")
    return folder


def words(*more: str) -> list[str]:
    return ["stage=collect", "data=text_files", "data.path='my notes'", "tracking=none", *more]


def folders() -> list[Path]:
    return sorted(Path("outputs/runs").glob("*/*"))


def fingerprints(lines: list[str]) -> dict[str, str]:
    composition, _ = compose_all(lines, [])
    locate(composition, Store([Path(root) for root in composition.root.paths.store]), Path("outputs/runs"))
    return {name: node.fingerprint for name, node in composition.nodes.items()}


@pytest.mark.usefixtures("notes")
def test_a_run_keeps_hydras_folder_with_the_words_of_the_command(llmexp):
    given = words("++collect.data.heldout=0.4", "hydra.job.name=mine")
    assert llmexp(*given, "--quiet").code == 0
    (folder,) = folders()
    assert OmegaConf.load(folder / ".hydra" / "overrides.yaml") == given[:-1]
    config = OmegaConf.load(folder / ".hydra" / "config.yaml")
    assert config.stages.collect.data.heldout == 0.4
    hydra = OmegaConf.load(folder / ".hydra" / "hydra.yaml").hydra
    assert hydra.job.name == "mine"
    assert Path(hydra.run.dir) == folder


@pytest.mark.usefixtures("notes")
def test_a_runs_saved_lines_give_the_same_artifacts(llmexp):
    assert llmexp(*words("data.heldout=0.4"), "--quiet").code == 0
    (folder,) = folders()
    saved = [str(line) for line in OmegaConf.load(folder / ".hydra" / "overrides.yaml")]
    made = json.loads((folder / "collect" / "artifact.json").read_text())["fingerprint"]
    assert fingerprints(saved) == {"collect": made}
    assert fingerprints([*saved, "data.heldout=0.3"]) != {"collect": made}


@pytest.mark.usefixtures("notes")
def test_tracking_and_folders_do_not_change_an_artifact():
    lines = words()
    first = fingerprints(lines)
    assert fingerprints([*lines, "tracking=jsonl", "paths.outputs=elsewhere"]) == first
    assert fingerprints([*lines, "launcher=processes", "hardware=h200"]) == first


@pytest.mark.usefixtures("notes")
def test_an_explicit_run_folder_is_used(llmexp):
    assert llmexp(*words("hydra.run.dir=here/it/is"), "--quiet").code == 0
    assert Path("here/it/is/.hydra/overrides.yaml").is_file()
    assert Path("here/it/is/pipeline.json").is_file()
    assert folders() == []


@pytest.mark.usefixtures("notes")
def test_an_explicit_run_folder_holds_one_composition(llmexp):
    explicit = "hydra.run.dir=here/it/is"
    assert llmexp(*words(explicit), "--quiet").code == 0
    assert llmexp(*words(explicit), "--quiet").code == 0
    other = llmexp(*words(explicit, "data.heldout=0.4"), "--quiet")
    assert other.code == 2
    assert "holds the run of another composition" in other.err


@pytest.mark.usefixtures("notes")
def test_a_dry_run_says_what_would_run_and_writes_no_run(llmexp):
    said = llmexp(*words("launcher.dry_run=true"))
    assert said.code == 0
    assert "would run" in said.out
    assert folders() == []


def test_a_value_of_the_environment_is_kept_nowhere(llmexp, notes, monkeypatch):
    monkeypatch.setenv("LLMEXP_SECRET", SECRET)
    for file in notes.iterdir():
        os.utime(file, (1, 1))  # hashes of files that may still change are not remembered
    notes.rename(notes.with_name(SECRET))
    lines = ["stage=collect", "data=text_files", "data.path=${oc.env:LLMEXP_SECRET}", "tracking=jsonl"]
    assert llmexp(*lines, "--quiet").code == 0
    (folder,) = folders()
    assert "${oc.env:LLMEXP_SECRET}" in (folder / ".hydra" / "config.yaml").read_text()
    files = [file for file in Path("outputs").rglob("*") if file.is_file()]
    assert [str(file) for file in files if SECRET.encode() in file.read_bytes()] == []


def test_no_secret_is_written_when_a_stage_fails(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLMEXP_SECRET", "s3cr3t-folder")
    (tmp_path / "s3cr3t-folder").mkdir()
    (tmp_path / "s3cr3t-folder" / "broken.jsonl").write_text("this is no JSON\n" * 9)
    lines = ["stage=collect", "data=jsonl", "data.path=${oc.env:LLMEXP_SECRET}", "tracking=jsonl"]
    assert llmexp(*lines).code == 1
    assert llmexp("report", "last").code == 0
    files = [path for path in (tmp_path / "outputs").rglob("*") if path.is_file()]
    assert any(path.name == "error.txt" for path in files)
    assert [path for path in files if b"s3cr3t-folder" in path.read_bytes()] == []


def test_a_short_value_of_the_environment_hides_its_own_place_and_no_other(compose, monkeypatch):
    monkeypatch.setenv("STEPS", "8")
    lines = [
        "model=debug",
        "trainer=debug",
        "data=text_files",
        "data.path=.",
        "trainer.max_steps=${oc.env:STEPS}",
    ]
    made = compose(*lines, "trainer.global_batch=8", "trainer.val_every=${.max_steps}")
    node = made.nodes["pretrain"]
    trainer = hidden(as_data(node.spec), node.secret_paths)["trainer"]
    assert trainer["max_steps"] == "***"
    assert trainer["val_every"] == "***"
    assert trainer["global_batch"] == 8
    assert mask_of(made.secrets)("8") == "8"


def test_a_short_value_of_the_environment_is_tracked_nowhere_under_its_name(llmexp, notes, monkeypatch):
    monkeypatch.setenv("SHARE", "0.3")
    lines = ["stage=collect", "data=text_files", f"data.path={notes}", "data.heldout=${oc.env:SHARE}"]
    assert llmexp(*lines, "tracking=jsonl", "--quiet").code == 0
    (folder,) = folders()
    records = [json.loads(line) for line in (folder / "collect" / "journal.jsonl").read_text().splitlines()]
    (params,) = [record["params"] for record in records if "params" in record]
    assert params["data.heldout"] == "***"
    (node,) = llmexp("config", *lines, "data", "--json").json["nodes"]
    shown = {field["key"]: field["value"] for field in node["fields"]}
    assert shown["heldout"] == "***"


@pytest.mark.parametrize("uri", ["http://me:hunter2@127.0.0.1:9", "http://127.0.0.1:9/?password=hunter2"])
def test_no_password_of_an_address_is_written(llmexp, tmp_path, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["llmexp", f"tracking.uri='{uri}'"])
    (tmp_path / "notes").mkdir()
    for number in range(9):
        (tmp_path / "notes" / f"{number}.txt").write_text(f"a note, number {number}")
    lines = ["stage=collect", "data=text_files", "data.path=notes", "data.heldout=0.3", "tracking=mlflow"]
    lines += [f"tracking.uri='{uri}'", "tracking.close_wait=0", "tracking.linger=0"]
    assert llmexp(*lines).code == 0
    files = [path for path in (tmp_path / "outputs").rglob("*") if path.is_file()]
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
