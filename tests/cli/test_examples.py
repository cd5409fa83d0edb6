"""The examples in the help of the verbs that look and compose."""

from __future__ import annotations

import re
import shlex

import pytest

VERBS = ("status", "logs", "show", "store", "report", "config", "plan", "check", "doctor")

NEEDS_MORE = re.compile(r"RUN_|3f9a2c|12-00-00|http://|/scratch|my_notes|--open| -f|--rebuild")
"""Examples that name something of the reader's, open a window, or go on for ever."""


def examples(llmexp, verb: str) -> list[list[str]]:
    text = llmexp(verb, "--help").out.partition("examples:")[2]
    lines = [line.strip() for line in text.splitlines() if line.startswith("  llmexp ")]
    return [shlex.split(line)[1:] for line in lines if not NEEDS_MORE.search(line)]


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_the_help_work(world, llmexp, monkeypatch, verb):
    monkeypatch.chdir(world.outputs.parent)
    world.run()
    words = examples(llmexp, verb)
    assert words
    for example in words:
        said = llmexp(*(word.replace("sft", "pretrain") if verb == "logs" else word for word in example))
        assert said.code == 0, f"llmexp {' '.join(example)}: {said.err}"
