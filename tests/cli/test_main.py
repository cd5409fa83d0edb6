"""The command line around all verbs: exit codes, and readers that leave."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", ["--help", "--cfg job", "experiment=quickstart -c=job", "status", "config"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_failure_of_a_verb_that_prints(tmp_path, words, unbuffered):
    with subprocess.Popen(
        [sys.executable, "-m", "llmexp", *words.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize("part, text", [("launcher.dry_run", "False"), ("launcher", "dry_run: false")])
def test_a_part_of_the_composition_that_is_false_is_printed(llmexp, part, text):
    said = llmexp("--cfg", "job", "-p", part)
    assert (said.code, text in said.out) == (0, True), said.err


def test_a_part_that_is_not_there_is_a_mistake_with_and_without_the_trace(llmexp):
    for more in ([], ["--traceback"]):
        said = llmexp("--cfg", "job", "-p", "launcher.nothing", *more)
        assert said.code == 2
        assert ("Traceback (most recent call last)" in said.err) == bool(more)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without a name")
def test_a_user_without_a_name_is_told_to_mlflow_by_number():
    code = "import os; from llmexp.track import mlflow_sink as m; os.setuid(54321); print(m._user())"
    names = ("LOGNAME", "USER", "LNAME", "USERNAME")
    bare = {key: value for key, value in os.environ.items() if key not in names}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True)
    assert done.stdout == "54321\n", done.stderr


@pytest.mark.parametrize(
    "word, told", [("plna", "the nearest is 'plan'"), ("chatt", "'chat'"), ("seed", "key=value")]
)
def test_a_word_that_is_no_verb_is_told_with_the_nearest_one(llmexp, word, told):
    said = llmexp(word, "last")
    assert said.code == 2
    assert f"no verb '{word}'" in said.err
    assert told in said.err


def test_a_verb_behind_overrides_is_told_where_it_belongs(llmexp):
    said = llmexp("model=tiny", "check")
    assert said.code == 2
    assert "the verb comes first: llmexp check model=tiny" in said.err


def test_what_follows_a_flag_is_its_value_and_no_verb(llmexp):
    assert "the verb comes first" not in llmexp("model=tiny", "--config-dir", "check").err


def test_nothing_but_the_name_shows_the_help_and_trains_nothing(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = llmexp()
    assert said.code == 0
    assert "verbs:" in said.out
    assert not list(tmp_path.iterdir())
