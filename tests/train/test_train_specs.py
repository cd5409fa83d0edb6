"""Specs of training: their mistakes, and that each is what it builds."""

import inspect
import shutil
from pathlib import Path

import pytest
import yaml

from llmexp.config.spec import settings, target
from llmexp.parallel.config import ParallelSpec
from llmexp.train import config
from llmexp.train.config import TrainerSpec, check_batch, check_budget

BUILDING = [
    config.AdamWSpec,
    config.MuonSpec,
    config.CosineSpec,
    config.LinearSpec,
    config.ConstantSpec,
    config.WSDSpec,
]


def paths(mistakes):
    return [mistake.path for mistake in mistakes]


@pytest.mark.parametrize("spec", BUILDING)
def test_a_spec_s_fields_are_the_keywords_of_what_it_builds(spec):
    keywords = set(inspect.signature(target(spec.builds)).parameters) - {"parameters"}
    assert {f.name for f in settings(spec)} == keywords


def test_one_budget_is_no_mistake():
    for one in ({"max_steps": 5}, {"max_tokens": 5}, {"max_seconds": 5.0}):
        assert not list(TrainerSpec(**one).check())


@pytest.mark.parametrize("wrong", [{}, {"max_steps": 5, "max_tokens": 5}])
def test_no_budget_or_two_are_a_mistake(wrong):
    (mistake,) = TrainerSpec(**wrong).check()
    assert "exactly one" in mistake.remedy


def test_a_micro_batch_above_the_global_batch_is_a_mistake():
    assert paths(TrainerSpec(max_steps=1, global_batch=4, micro_batch=5).check()) == ["micro_batch"]


def test_a_resume_path_that_does_not_exist_is_a_mistake(tmp_path):
    assert paths(TrainerSpec(max_steps=1, resume="/no/such").check()) == ["resume"]
    assert not list(TrainerSpec(max_steps=1, resume=str(tmp_path)).check())


def test_compiling_without_a_compiler_is_refused_and_the_package_named(monkeypatch, tmp_path):
    spec = TrainerSpec(max_steps=1, compile=True)
    if shutil.which("g++"):
        assert not list(spec.check())
    monkeypatch.setenv("PATH", str(tmp_path))
    (mistake,) = spec.check()
    assert mistake.path == "compile"
    assert "g++" in mistake.remedy


def test_a_global_batch_that_ranks_cannot_share_is_a_mistake():
    (mistake,) = check_batch(TrainerSpec(max_steps=1, global_batch=10), ParallelSpec(dp_replicate=4))
    assert mistake.path == "trainer.global_batch"
    assert "8 or 12" in mistake.remedy


def test_a_schedule_that_does_not_fit_the_budget_is_a_mistake():
    trainer = TrainerSpec(max_tokens=1000, global_batch=10)
    assert paths(check_budget(trainer, config.CosineSpec(warmup_steps=10), seq_len=10)) == [
        "scheduler.warmup_steps"
    ]
    assert not list(check_budget(trainer, config.CosineSpec(warmup_steps=10), seq_len=5))


CONF = Path(__file__).parents[2] / "conf"
OPTIONS = [
    p for group in ("optimizer", "scheduler", "trainer", "parallel") for p in CONF.glob(f"{group}/*.yaml")
]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda p: f"{p.parent.name}={p.stem}")
def test_every_option_is_a_spec_without_mistakes_and_has_a_header(option):
    text = option.read_text(encoding="utf-8")
    assert text.startswith("# ")
    values = yaml.safe_load(text)
    module, _, name = values.pop("_target_").rpartition(".")
    spec = target(f"{module}:{name}")(**values)
    assert not list(spec.check())
