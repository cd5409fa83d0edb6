"""A02: 2e-5 became a text, no became False, 010 became 8, 12:30 became 750 (LlamaFactory#4014)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from llmexp.cli.compose import compose, session
from llmexp.cli.main import main
from llmexp.config.spec import as_data
from llmexp.config.typed import spec_from

LINES = (Path(__file__).parent / "inputs" / "a02_scalars.yaml").read_text().splitlines()
WRITTEN = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in LINES) if value}
"""The values letter by letter: lr 2e-5, lang no, tag 010, start 12:30."""


@pytest.fixture
def tree(tmp_path) -> Path:
    """A config tree whose files hold the case's values."""
    for name, text in {
        "optimizer/mine.yaml": f"_target_: llmexp.train.config.AdamWSpec\nlr: {WRITTEN['lr']}\n",
        **{
            f"tracking/{key}.yaml": f"_target_: llmexp.track.config.JsonlSpec\nexperiment: {WRITTEN[key]}\n"
            for key in ("lang", "tag", "start")
        },
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_a_rate_is_the_same_number_from_a_file_a_line_a_sweep_and_saved_data(tree):
    from_file = compose(["optimizer=mine"], [str(tree)])[0].target.spec.optimizer
    from_line = compose([f"optimizer.lr={WRITTEN['lr']}"], [])[0].target.spec.optimizer
    opened = session([])
    master = opened.loader.load_configuration("config", [], run_mode_of_a_sweep())
    swept = opened.loader.load_sweep_config(master, [f"optimizer.lr={WRITTEN['lr']}"])
    again = spec_from(json.loads(json.dumps(as_data(from_file))))
    rates = [from_file.lr, from_line.lr, swept.stages.pretrain.optimizer.lr, again.lr]
    assert rates == [2e-05] * 4
    assert {type(rate) for rate in rates} == {float}


def run_mode_of_a_sweep():
    from hydra.types import RunMode

    return RunMode.MULTIRUN


def test_a_printed_configuration_holds_the_number(capsys):
    assert main([f"optimizer.lr={WRITTEN['lr']}", "--cfg", "job", "--package", "pretrain.optimizer"]) == 0
    assert OmegaConf.create(capsys.readouterr().out).lr == 2e-05


@pytest.mark.parametrize("key", ["lang", "tag", "start"])
def test_a_text_on_the_command_line_is_kept_letter_by_letter(key):
    composition, _ = compose([f"tracking.experiment='{WRITTEN[key]}'"], [])
    assert composition.root.tracking.experiment == WRITTEN[key]


@pytest.mark.parametrize("key", ["lang", "tag"])
def test_a_bare_text_on_the_command_line_is_kept_too(key):
    composition, _ = compose([f"tracking.experiment={WRITTEN[key]}"], [])
    assert composition.root.tracking.experiment == WRITTEN[key]


@pytest.mark.parametrize("key", ["lang", "tag", "start"])
def test_a_text_that_yaml_takes_for_something_else_is_refused_with_its_key(tree, capsys, key):
    code = main(["check", f"tracking={key}", "--config-dir", str(tree)])
    told = capsys.readouterr().err
    if code == 0:
        composition, _ = compose([f"tracking={key}"], [str(tree)])
        assert composition.root.tracking.experiment == WRITTEN[key]
    else:
        assert code == 2
        assert "tracking.experiment" in told
        assert "put the value in quotes" in told
