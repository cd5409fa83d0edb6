"""A01: a file name with '=' died in the parser of overrides (hydra#1577, pytorch-lightning#2696)."""

from __future__ import annotations

import re
from pathlib import Path

from llmexp.cli.compose import compose
from llmexp.cli.main import main

NAME = "runs/epoch=3-step=20.ckpt"


def test_a_quoted_name_arrives_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(NAME).parent.mkdir()
    Path(NAME).touch()
    composition, _ = compose([f"trainer.resume='{NAME}'"], [])
    assert composition.target.spec.trainer.resume == NAME


def test_an_unquoted_name_is_a_mistake_that_shows_the_quoted_form(capsys):
    assert main(["check", f"trainer.resume={NAME}"]) == 2
    told = capsys.readouterr().err
    assert "is not an override" in told
    # Within the shell's quotes, the override's own quotes are spelt '"'"'.
    assert f"trainer.resume='{NAME}'" in told.replace("""'"'"'""", "'")
    assert "Traceback" not in told
    assert len(told.splitlines()) < 8


def test_every_name_that_a_run_writes_can_be_given_unquoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "my notes"
    notes.mkdir()
    for number in range(20):
        (notes / f"n={number}.txt").write_text(f"a note, the number {number}\n")
    words = ["stage=collect", "data=text_files", "data.path='my notes'", "tracking=jsonl", "--quiet"]
    assert main(words) == 0
    written = [str(path.relative_to(tmp_path)) for path in Path(tmp_path / "outputs").rglob("*")]
    assert written
    assert [name for name in written if not re.fullmatch(r"[A-Za-z0-9._/-]+", name)] == []
