"""The verbs that look at runs, on runs that the command itself made."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import llmexp as package

WORDS = "stage=collect data=text_files data.path=notes tracking=none"
OTHER = f"{WORDS} data.heldout=0.3"


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(package.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "llmexp", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which three commands ran: two that differ in one value, and one that failed."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "notes").mkdir()
    (folder / "broken").mkdir()
    for index in range(40):
        (folder / "notes" / f"{index}.txt").write_text(f"Note {index} is about the number {index * index}.\n")
        (folder / "broken" / f"{index}.txt").write_bytes(b"\0\1\2\3" * 100)
    assert command(folder, *WORDS.split()).returncode == 0
    assert command(folder, *OTHER.split()).returncode == 0
    assert command(folder, *WORDS.replace("notes", "broken").split()).returncode == 1
    return folder


@pytest.fixture
def look(folder, llmexp, monkeypatch):
    monkeypatch.chdir(folder)
    return llmexp


def names(look) -> list[str]:
    return [run["run"] for run in look("status", "--json").json["runs"]]


def test_status_tells_what_is_done_and_what_has_failed(look):
    assert [run["state"] for run in look("status", "--json").json["runs"]] == ["done", "done", "failed"]


def test_logs_of_a_failed_run_end_with_its_error(look):
    said = look("logs", "last")
    assert said.code == 0
    assert "collect failed:" in said.out
    assert "BadData" in said.out


def test_diff_finds_the_one_value_that_was_set(look):
    first, second, _ = names(look)
    found = look("diff", first, second, "--json").json
    assert list(found["config"]) == ["collect.data.heldout"]
    assert "collect.documents.heldout" in found["results"]


def test_show_tells_the_composition_that_ran(look):
    found = look("show", f"{names(look)[1]}/collect", "--json").json
    assert found["config"]["data"]["heldout"] == 0.3
    assert found["kind"] == "corpus"


def test_report_is_written_into_the_run(look, folder):
    path = Path(look("report", names(look)[0]).out.strip())
    assert (folder / path).is_file()


def test_the_command_that_verify_names_builds_what_was_damaged_again(look, folder):
    path = Path(look("show", f"{names(look)[0]}/collect", "--json").json["path"])
    name = next(path.glob("train/*"))
    before = name.read_bytes()
    name.write_bytes(before[:-1])
    said = look("store", "verify", path.name, "--rebuild")
    again = next(line.strip() for line in said.out.splitlines() if line.strip().startswith("llmexp "))
    assert shlex.split(again)[1:] == WORDS.split()
    assert command(folder, *shlex.split(again)[1:]).returncode == 0
    assert name.read_bytes() == before
