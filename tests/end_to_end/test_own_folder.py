"""The README's second command: training on the reader's own folder, however small or broken."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import artifacts, built, environment, must, run, runs

OWN = ["data=text_files", "data.path=mine", "model=debug", "trainer.max_steps=5", "tracking=jsonl"]
QUICK = ["trainer.global_batch=2", "loader.seq_len=32"]
"""As the command above, in fewer seconds."""
COLLECT = ["stage=collect", "data=text_files", "data.path=mine", "tracking=none"]
RIGHTS = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Before a command that is to have no more rights than a user: root reads and writes everything."""


def write(folder: Path, number: int) -> None:
    (folder / "mine").mkdir()
    for index in range(number):
        text = f"My note {index} is about the sea and the wind, and how they differ. {index * index}\n"
        (folder / "mine" / f"note{index}.md").write_text(text)


@pytest.mark.parametrize("number", [2, 3, 6])
def test_a_few_notes_are_enough_to_train_on(tmp_path, number):
    write(tmp_path, number)
    done = must(tmp_path, *OWN, *QUICK)
    assert built(runs(tmp_path)[0])[-1] == "pretrain"
    assert "the text is too short for tokenizer.vocab_size=4096" in done.stderr


def test_one_note_cannot_be_split_and_the_message_says_what_to_do(tmp_path):
    write(tmp_path, 1)
    done = run(tmp_path, *OWN, *QUICK)
    assert done.returncode in (1, 2)
    assert "held" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_folder_is_told_as_such(tmp_path):
    write(tmp_path, 0)
    done = run(tmp_path, *OWN, *QUICK)
    assert done.returncode in (1, 2)
    assert "mine" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_not_there_is_a_mistake_and_leaves_nothing(tmp_path):
    done = run(tmp_path, *OWN)
    assert done.returncode == 2
    assert "data.path" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder of twenty good notes and every kind of bad file."""
    write(tmp_path, 20)
    packed = gzip.compress(b"A line of compressed text that is good.\n" * 500)
    for name, content in {
        "empty.txt": b"",
        "binary.txt": bytes(range(256)) * 50,
        "cut.txt.gz": packed[: len(packed) // 2],
        "not.txt.gz": b"this is no gzip at all",
        "latin.txt": "Café au lait, déjà vu\n".encode("latin-1"),
        "mark.txt": b"\xef\xbb\xbfText after a byte-order mark is fine.\n",
        "nul.txt": b"some text\0with a NUL in the middle of it\n",
        "utf16.txt": "Text in UTF-16 with its mark is fine too.\n".encode("utf-16"),
    }.items():
        (tmp_path / "mine" / name).write_bytes(content)
    return tmp_path


def test_bad_files_are_named_and_counted_and_the_rest_is_read(broken):
    done = must(broken, *COLLECT)
    assert "4 bad files left out" in done.stderr
    for name in ("binary.txt", "cut.txt.gz", "empty.txt", "not.txt.gz", "latin.txt"):
        assert name in done.stderr
    (corpus,) = artifacts(broken, "corpus")
    stats = json.loads((corpus / "stats.json").read_text())
    assert (stats["n_bad_files"], stats["n_bad_records"]) == (4, 1)
    assert sum(stats["documents"].values()) == 23


@pytest.mark.parametrize(
    "limit, names",
    [("data.max_bad_files=3", "data.max_bad_files"), ("data.max_bad_records=0", "latin.txt"),
     ("data.on_bad_file=fail", "binary.txt")],
)  # fmt: skip
def test_more_than_the_limit_ends_the_command(broken, limit, names):
    done = run(broken, *COLLECT, limit)
    assert done.returncode == 1
    assert names in done.stderr
    assert "Traceback" not in done.stderr
    assert artifacts(broken, "corpus") == []


def test_the_right_encoding_reads_the_last_one_too(broken):
    must(broken, *COLLECT, "data.encoding=latin-1")
    (corpus,) = artifacts(broken, "corpus")
    assert json.loads((corpus / "stats.json").read_text())["n_bad_records"] == 0


@pytest.mark.parametrize("given", ["empty", "empty/**", "wrong"])
def test_a_folder_without_a_file_to_read_is_a_mistake(tmp_path, given):
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "picture.png").write_bytes(b"png")
    words = ["stage=collect", "data=text_files", f"data.path='{given}'", "tracking=none"]
    done = run(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert "data.path" in done.stderr
    assert "no file" in done.stderr
    assert run(tmp_path, "check", *words).returncode == (0 if given == "wrong" else 2)


@pytest.mark.parametrize("closed", ["mine/note3.md", "mine/private"])
def test_what_may_not_be_read_is_a_mistake_that_names_it(tmp_path, closed):
    write(tmp_path, 6)
    (tmp_path / "mine" / "private").mkdir()
    (tmp_path / closed).chmod(0)
    words = [*RIGHTS, sys.executable, "-m", "llmexp", *COLLECT]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert f"collect: {closed} may not be read by this user" in done.stderr
    assert artifacts(tmp_path, "corpus") == []


def test_a_file_in_a_folder_that_may_not_be_looked_into_is_not_told_as_missing(tmp_path):
    write(tmp_path, 6)
    (tmp_path / "mine").chmod(0)
    words = [*RIGHTS, sys.executable, "-m", "llmexp", "check", *COLLECT, "data.path=mine/note3.md"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "mine/note3.md may not be read by this user" in done.stderr


@pytest.mark.parametrize("sweep", [[], ["-m"]])
def test_outputs_that_may_not_be_written_to_are_a_mistake_before_anything_runs(tmp_path, sweep):
    write(tmp_path, 6)
    (tmp_path / "closed").mkdir(mode=0o555)
    words = [*RIGHTS, sys.executable, "-m", "llmexp", *sweep, *COLLECT, "paths.outputs=closed/outputs"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "may not be written to" in done.stderr
    assert "paths.outputs" in done.stderr
    assert "closed" in done.stderr
