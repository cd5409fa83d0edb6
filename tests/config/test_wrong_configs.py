"""Every mistake of a configuration is told at once, with its place, its source and what to do."""

from __future__ import annotations

import pytest
from wrong_configs import WRONG, Wrong


def test_the_table_is_broad():
    assert len(WRONG) >= 40
    assert len({wrong.kind for wrong in WRONG}) >= 12
    assert len({wrong.group for wrong in WRONG}) >= 10
    assert sum(len(wrong.told) == 3 for wrong in WRONG) >= 6


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_configuration_is_told(wrong: Wrong, llmexp, tree, tmp_path, monkeypatch):
    monkeypatch.delenv("LLMEXP_NOT_SET", raising=False)
    words = [word.replace("{tmp}", str(tmp_path)) for word in wrong.words]
    said = llmexp("check", "--json", *words, *(("--config-dir", tree(wrong.files)) if wrong.files else ()))
    assert said.code == 2
    found = {mistake["path"]: mistake for mistake in said.json["mistakes"]}
    assert sorted(found) == sorted(told.path for told in wrong.told)
    for told in wrong.told:
        mistake = found[told.path]
        assert told.problem in mistake["problem"]
        assert told.source.replace("{tmp}", str(tmp_path)) in mistake["source"]
        assert told.remedy in mistake["remedy"]


def test_mistakes_are_words_and_no_traceback(llmexp):
    said = llmexp("check", "optimizer.lrr=1", "seed=x")
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("2 mistakes in this configuration:")
    assert "Traceback" not in said.err


def test_a_run_refuses_what_check_refuses(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = llmexp("optimizer.lrr=1")
    assert said.code == 2
    assert "Did you mean 'optimizer.lr'?" in said.err
    assert list(tmp_path.iterdir()) == []


def test_compile_without_a_compiler_is_refused_and_the_package_named(llmexp, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = llmexp("check", "trainer.compile=true")
    assert said.code == 2
    assert "pretrain.trainer.compile" in said.err
    assert "apt-get install g++" in said.err


def test_a_mesh_that_the_launcher_does_not_start_may_be_checked_but_not_run(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert llmexp("check", "parallel.dp_replicate=2").code == 0
    said = llmexp("parallel.dp_replicate=2")
    assert said.code == 2
    assert "pretrain.parallel.dp_replicate: is 2" in said.err
    assert llmexp("launcher=processes", "launcher.gpus_per_node=3", "parallel.dp_replicate=2").code == 2


def test_a_missing_config_folder_is_named(llmexp):
    said = llmexp("check", "--config-dir", "no/such/folder")
    assert said.code == 2
    assert "no/such/folder" in said.err
