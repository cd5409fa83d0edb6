"""A04: a misspelt key, or false for a number, passed: the run trained with defaults (trl#1564)."""

from __future__ import annotations

import pytest

from llmexp.cli.main import main


@pytest.mark.parametrize(
    "line, parts",
    [
        ("+trainer.max_step=5", ("trainer.max_step", "Did you mean 'trainer.max_steps'?")),
        ("++trainer.max_step=5", ("trainer.max_step", "Did you mean 'trainer.max_steps'?")),
        ("trainer.max_step=5", ("trainer.max_step", "Did you mean 'trainer.max_steps'?")),
        ("trainer.max_steps=false", ("pretrain.trainer.max_steps", "false is not an integer")),
        ("trainer.max_steps=1.5", ("pretrain.trainer.max_steps", "1.5 is not an integer")),
        ("seed=true", ("pretrain.seed", "true is not an integer")),
    ],
)
def test_it_is_refused_before_anything_is_written(line, parts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([line]) == 2
    told = capsys.readouterr().err
    for part in parts:
        assert part in told
    assert list(tmp_path.iterdir()) == []
