"""Options from a package outside the repository, and what no configuration may name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from llmexp.config import typed
from llmexp.stage.locate import locate
from llmexp.store.store import Store

SPEC = '''
from dataclasses import dataclass
from typing import ClassVar

from llmexp.config.spec import Mistake, setting
from llmexp.train.config import OptimizerSpec


@dataclass(kw_only=True)
class LionSpec(OptimizerSpec):
    """Lion."""

    builds: ClassVar[str] = "lion_of_mine.lion:lion"

    lr: float = setting("Learning rate.", default=1e-4, gt=0)
    beta: float = setting("Decay.", default=0.9, ge=0, lt=1)

    def check(self):
        if self.beta < 0.5:
            yield Mistake("beta", f"{self.beta} is too small", "use 0.9")
'''
OPTION = "# Lion.\n_target_: lion_of_mine.config.LionSpec\nlr: 2.0e-4\n"


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder of installed packages that Python looks into."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] in ("lion_of_mine", "not_declared")]:
        del sys.modules[name]
    forget()


def forget() -> None:
    typed.declared_packages.cache_clear()
    typed.spec_class.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def lion(site) -> Path:
    """A person's package with an optimizer, installed and declared."""
    package = site / "lion_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "config.py").write_text(SPEC)
    (package / "lion.py").write_text("def lion(*, parameters, lr, beta):\n    return parameters, lr, beta\n")
    info = site / "lion_of_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lion-of-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmexp.specs]\nlion = lion_of_mine\n")
    forget()
    return package


@pytest.fixture
def folder(tree) -> Path:
    """A person's config tree with the option."""
    return tree({"optimizer/lion.yaml": OPTION})


@pytest.mark.usefixtures("lion")
def test_an_option_of_a_persons_package_composes_and_builds(compose, folder):
    optimizer = compose("optimizer=lion", "optimizer.beta=0.8", tree=folder).target.spec.optimizer
    assert optimizer.build(parameters=1) == (1, 2e-4, 0.8)


@pytest.mark.usefixtures("lion")
def test_its_own_checks_and_ranges_hold(llmexp, folder):
    said = llmexp("check", "optimizer=lion", "optimizer.beta=0.1", "--config-dir", folder)
    assert (said.code, "pretrain.optimizer.beta: 0.1 is too small" in said.err) == (2, True)
    said = llmexp("check", "optimizer=lion", "optimizer.lr=0", "--config-dir", folder)
    assert (said.code, "give a value > 0" in said.err) == (2, True)


@pytest.mark.usefixtures("lion")
def test_it_is_listed_with_its_header(llmexp, folder):
    assert "Lion." in llmexp("config", "optimizer", "--config-dir", folder).out


def test_the_packages_source_counts_for_what_is_made_with_it(compose, folder, lion, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fingerprints() -> dict[str, str]:
        composition = compose("stage=sft", "optimizer=lion", tree=folder)
        locate(composition, Store([tmp_path / "store"]), tmp_path / "runs")
        return {name: node.fingerprint for name, node in composition.nodes.items()}

    first = fingerprints()
    assert fingerprints() == first
    (lion / "lion.py").write_text("def lion(*, parameters, lr, beta):\n    return None\n")
    changed = {name for name, print_ in fingerprints().items() if print_ != first[name]}
    assert changed == {"pretrain", "chat_tokens", "sft"}  # the conversations take the model's tokenizer


def test_a_package_that_is_not_declared_is_refused_before_it_is_imported(llmexp, site, tree, tmp_path):
    (site / "not_declared.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    forget()
    for name in ("not_declared.Spec", "not_declared.config.Spec", "not_declared", "llmexp.not_declared.Spec"):
        folder = tree({"optimizer/bad.yaml": f"_target_: {name}\n"})
        said = llmexp("check", "optimizer=bad", "--config-dir", folder)
        assert said.code == 2
        assert f"'{name}' may not be named here" in said.err
        assert "optimizer/bad.yaml" in said.err
    assert "not_declared" not in sys.modules
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("where", ["hydra/callbacks/evil.yaml", "hydra/launcher/llmexp.yaml"])
def test_a_tree_with_options_of_hydras_own_runs_nothing(llmexp, tree, tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    target = f"{{_target_: pathlib.Path.touch, self: {tmp_path / 'touched'}}}"
    head = "# @package hydra.callbacks\n" if "launcher" not in where else ""
    text = f"{head}evil: {target}\n"
    chooses = "defaults:\n  - override /hydra/callbacks: evil\n" if "callbacks" in where else ""
    recipe = f"{chooses}_target_: llmexp.stage.config.ExperimentSpec\n"
    folder = tree({where: text, "experiment/mine.yaml": recipe})
    for words in (["check"], ["-m", "seed=1,2"]):
        said = llmexp(*words, "experiment=mine", "--config-dir", folder)
        assert said.code == 2, said.err
    assert not (tmp_path / "touched").exists()
