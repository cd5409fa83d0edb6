"""What an option needs beyond llmexp itself is missed when a composition is checked, not when it runs."""

from __future__ import annotations

import tomllib

import pytest
from test_spec_laws import SPECS

from llmexp.cli.compose import conf_folder
from llmexp.corpus.curation.config import DatatroveFilterSpec


def test_a_module_that_is_not_installed_is_told_with_the_command_that_installs_it(llmexp, monkeypatch):
    monkeypatch.setattr(DatatroveFilterSpec, "needs_modules", ("no_such_module",))
    said = llmexp("check", "stage=curate", "curation=web")
    assert said.code == 2
    assert (
        "curate.curation.steps.repetition: runs on no_such_module, which this Python does not have"
        in said.err
    )
    assert "pip install 'llmexp[web]'" in said.err


@pytest.mark.parametrize(
    "spec", [s for s in SPECS if s.needs_modules or s.extra], ids=lambda spec: spec.__name__
)
def test_every_extra_that_a_spec_names_brings_its_modules(spec):
    project = tomllib.loads((conf_folder().parent / "pyproject.toml").read_text())["project"]
    brought = [requirement.partition(">")[0] for requirement in project["optional-dependencies"][spec.extra]]
    assert set(spec.needs_modules) <= set(brought)
