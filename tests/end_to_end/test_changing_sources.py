"""Source files that change while a stage reads them: what was made of them is not stored as theirs."""

from __future__ import annotations

import shutil

import pytest
from commands import SMALL, artifacts, must, run, running, wait_until

from llmexp.corpus.records import read_records

pytestmark = pytest.mark.slow

WORDS = ["stage=collect", "data=jsonl", "data.path=data", "tracking=none"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    for name in "ab":
        lines = (f'{{"text": "record {number} of {name}"}}\n' for number in range(200_000))
        (tmp_path / "data" / f"{name}.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_file_that_goes_away_while_it_is_read_is_told_as_such(folder):
    file = folder / "data" / "b.jsonl"
    with running(folder, *WORDS, "data.path=data/b.jsonl") as process:
        wait_until(lambda: list(folder.glob("outputs/store/corpus/.*/*")), "reading")
        file.rename(folder / "aside.jsonl")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out + err
    assert "changed while they were read (data/b.jsonl names no file)" in err


@pytest.mark.parametrize("change", ["removed", "rewritten"])
def test_a_change_while_it_is_read_ends_the_stage_and_the_next_run_has_it(folder, change):
    last, aside = folder / "data" / "b.jsonl", folder / "aside.jsonl"
    with running(folder, *WORDS) as process:
        wait_until(lambda: list(folder.glob("outputs/store/corpus/.*/*")), "reading")
        last.rename(aside)
        if change == "rewritten":
            last.write_text('{"text": "another"}\n')
        out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out + err
    assert "collect: its source files changed while they were read" in err
    assert not artifacts(folder, "corpus")
    aside.rename(last)
    must(folder, *WORDS)
    (corpus,) = artifacts(folder, "corpus")
    assert sum(" of b" in record["text"] for record in read_records(corpus, "train")) > 180_000


def test_a_run_that_is_all_found_does_not_call_a_shortened_artifact_ready(folder):
    must(folder, *WORDS)
    (corpus,) = artifacts(folder, "corpus")
    shard = next(path for path in corpus.rglob("train/*") if path.stat().st_size > 100)
    with open(shard, "r+b") as file:
        file.truncate(100)
    done = run(folder, *WORDS)
    assert done.returncode == 1
    assert "has 100 bytes instead of" in done.stderr
    assert "llmexp store" in done.stderr


@pytest.mark.parametrize("what", ["changed since the command began", "names no file"])
def test_a_model_to_start_from_that_changes_before_it_is_read_is_told(again, tmp_path, what):
    (model,) = artifacts(again, "model")
    given = tmp_path / "given"
    shutil.copytree(model, given)
    (given / "manifest.json").unlink()  # a folder like any other
    lines = (f'{{"text": "record {number}"}}\n' for number in range(200_000))
    (again / "more.jsonl").write_text("".join(lines))
    words = [word for word in SMALL if not word.startswith("data")]
    words += ["data=jsonl", "data.path=more.jsonl", "curation=none", f"model.init_from={given}"]
    before = set(again.glob("outputs/store/corpus/.*/*"))
    with running(again, *words) as process:
        wait_until(lambda: set(again.glob("outputs/store/corpus/.*/*")) - before, "reading")
        if what == "names no file":
            given.rename(tmp_path / "aside")
        else:
            (given / "more.txt").write_text("more")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out + err
    assert "pretrain: " in err
    assert what in err
    assert artifacts(again, "model") == [model]
