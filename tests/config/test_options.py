"""Every YAML file of the tree composes."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from llmexp.cli.compose import conf_folder, session
from llmexp.config.spec import Spec, as_data
from llmexp.config.typed import spec_class, spec_from

FILES = sorted(file.relative_to(conf_folder()).with_suffix("") for file in conf_folder().glob("*/*.yaml"))
GROUPS = sorted({str(file.parent) for file in FILES})
GIVEN = {
    "data.path": "README.md",
    "data.name": "some/dataset",
    "tokenizer.path": "some/tokenizer",
    "tokenizer.name": "gpt2",
    "tokenizer.encoding": "gpt2",
}
"""A value for whatever an option leaves to the person."""


def of_group(group: str) -> list[str]:
    return [file.name for file in FILES if str(file.parent) == group]


def stages_with(group: str) -> list[str]:
    """The stages whose YAML names a group; for one that is read at the root, any."""
    folder = conf_folder() / "stage"
    found = [name for name in of_group("stage") if f"- /{group}:" in (folder / f"{name}.yaml").read_text()]
    return found or ["collect"]


PLACES = [
    (str(file), stage)
    for file in FILES
    if file.parent.name not in ("experiment", "pipeline", "stage")
    for stage in stages_with(str(file.parent))
]


def missing(cfg, path: str) -> list[str]:
    """What an option leaves to the person, below ``path``."""
    node = OmegaConf.select(cfg, path)
    return [str(key) for key in node if OmegaConf.is_missing(node, key)]


NUMBERS = {
    "curation": 5,
    "data": 9,
    "evaluation": 2,
    "experiment": 3,
    "hardware": 16,
    "launcher": 2,
    "loader": 3,
    "model": 7,
    "optimizer": 2,
    "parallel": 2,
    "paths": 1,
    "pipeline": 11,
    "reward": 3,
    "rollout": 1,
    "scheduler": 4,
    "stage": 9,
    "sweep": 1,
    "tokenizer": 4,
    "tracking": 4,
    "trainer": 3,
}
"""How many options each group has: one that vanishes is missed here, whoever took it away."""


def test_every_group_has_the_number_of_options_that_is_written_here():
    loader = session([], complete=False).loader
    assert {group: len(loader.get_group_options(group)) for group in GROUPS} == NUMBERS
    assert sorted(loader.list_groups("")) == sorted([*NUMBERS, "hydra"])
    assert len(list(conf_folder().rglob("*.yaml"))) == sum(NUMBERS.values()) + 1


def test_the_control_of_the_quickstart_trains_as_sft_does(compose):
    nodes = compose("pipeline=quickstart_control").nodes
    assert nodes["control"].spec == nodes["sft"].spec


@pytest.mark.parametrize("option, stage", PLACES)
def test_an_option_composes_within_the_stages_that_have_its_group(option, stage, compose):
    group, name = option.split("/")
    lines = [f"stage={stage}", f"{group}={name}"]
    cfg = session([], complete=False).compose(lines)
    path = group if group in cfg else f"stages.{list(cfg.stages)[-1]}.{group}"
    lines += [f"{group}.{key}={GIVEN.get(f'{group}.{key}', 'something')}" for key in missing(cfg, path)]
    composition = compose(*lines)
    spec = getattr(composition.root if group in cfg else composition.target.spec, group)
    assert isinstance(spec, spec_class(str(OmegaConf.select(cfg, path)._target_)))


@pytest.mark.parametrize("name", of_group("stage"))
def test_a_stage_composes_with_its_default_pipeline(name, compose):
    assert compose(f"stage={name}").target.kind == name


@pytest.mark.parametrize("name", of_group("pipeline"))
def test_a_pipeline_composes(name, compose):
    composition = compose(f"pipeline={name}")
    for node in composition.nodes.values():
        assert isinstance(node.spec, Spec)
        assert spec_from(as_data(node.spec)) == node.spec


@pytest.mark.parametrize("name", of_group("experiment"))
def test_check_finds_no_mistake_in_an_experiment(name, llmexp):
    said = llmexp("check", f"experiment={name}")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"no mistakes: {name} (")
