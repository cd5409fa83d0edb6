"""``llmexp config``."""

from __future__ import annotations

import pytest

from llmexp.cli.compose import conf_folder


def fields(said) -> dict[str, dict[str, str]]:
    (node,) = said.json["nodes"]
    return {field["key"]: field for field in node["fields"]}


def test_every_option_of_the_tree_is_listed_with_its_header(llmexp):
    listed = llmexp("config", "--json").json["groups"]
    files = {(file.parent.name, file.stem) for file in conf_folder().glob("*/*.yaml")}
    assert {(group, option["name"]) for group in listed for option in listed[group]} == files
    assert all(option["header"] for options in listed.values() for option in options)


def test_one_group_can_be_listed(llmexp):
    said = llmexp("config", "optimizer")
    assert "adamw" in said.out
    assert "muon" in said.out
    assert "llama3_8b" not in said.out


def test_an_option_shows_type_unit_default_description_and_origin(llmexp):
    found = fields(llmexp("config", "model=llama3_8b", "--json"))
    length = found["max_seq_len"]
    assert (length["value"], length["type"], length["unit"]) == ("8192", "int", "tokens")
    assert length["default"] == "required"
    assert length["source"].endswith("conf/model/llama3_8b.yaml")
    assert length["description"] == "Longest sequence that positions cover."
    assert found["dropout"]["source"] == "default"


def test_an_override_is_named_as_the_origin(llmexp):
    found = fields(llmexp("config", "optimizer=muon", "optimizer.lr=0.01", "--json"))
    assert (found["lr"]["value"], found["lr"]["source"]) == ("0.01", "override optimizer.lr=0.01")


def test_part_of_a_list_that_is_overridden_names_the_override(llmexp):
    found = fields(llmexp("config", "optimizer.betas.1=0.99", "--json"))
    assert (found["betas"]["value"], found["betas"]["source"]) == (
        "[0.9, 0.99]",
        "override optimizer.betas.1=0.99",
    )


def test_a_stage_of_an_experiment_is_shown_by_its_path(llmexp):
    said = llmexp("config", "experiment=quickstart", "sft.optimizer", "sft.optimizer.lr=0.5", "--json")
    assert said.json["nodes"][0]["path"] == "sft.optimizer"
    assert fields(said)["lr"]["value"] == "0.5"


def test_a_stage_path_alone_composes_that_stage(llmexp):
    assert llmexp("config", "grpo.rollout", "--json").json["nodes"][0]["spec"].endswith("RolloutSpec")


@pytest.mark.parametrize(
    "option", ["reward=format", "data=csv", "tokenizer=bytes", "evaluation=quick", "tracking=none"]
)
def test_an_option_of_any_group_is_shown_in_a_stage_that_has_it(llmexp, option):
    (node,) = llmexp("config", option, "--json").json["nodes"]
    assert node["path"].endswith(option.partition("=")[0])


def test_specs_within_a_node_are_shown_with_it(llmexp):
    found = fields(llmexp("config", "curation=prose", "--json"))
    assert found["steps.gopher.min_words"]["unit"] == "words"


def test_a_value_that_must_be_given_is_marked(llmexp):
    assert fields(llmexp("config", "data=text_files", "--json"))["path"]["value"] == "???"
    assert "give it" in llmexp("config", "data=text_files").out


def test_an_experiment_shows_its_header_and_stages(llmexp):
    said = llmexp("config", "experiment=quickstart", "--json").json
    assert said["options"][0]["name"] == "quickstart"
    assert {"pretrain", "sft", "grpo"} <= {stage["name"] for stage in said["stages"]}


def test_an_own_config_tree_is_listed_and_composed(llmexp, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# My own model.\ndefaults: [tiny]\nn_layers: 3\n")
    listed = llmexp("config", "model", "--config-dir", tmp_path, "--json").json["groups"]["model"]
    assert {"name": "mine", "header": "My own model."}.items() <= {
        k: o[k] for o in listed if o["name"] == "mine" for k in o
    }.items()
    found = fields(llmexp("config", "model=mine", "--config-dir", tmp_path, "--json"))
    assert found["n_layers"]["source"].endswith("model/mine.yaml")
    assert found["d_model"]["source"].endswith("model/tiny.yaml")


def test_what_the_environment_holds_is_not_printed(llmexp, monkeypatch):
    monkeypatch.setenv("SECRET_URI", "http://me:very-secret@host")
    said = llmexp("config", "tracking=mlflow", "tracking.uri=${oc.env:SECRET_URI}")
    assert "very-secret" not in said.out
    assert "***" in said.out


def test_a_wrong_path_is_a_mistake_with_the_nearest_name(llmexp):
    said = llmexp("config", "experiment=quickstart", "sft.optimizzr")
    assert said.code == 2
    assert "Did you mean 'sft.optimizer'?" in said.err


def test_a_wrong_option_is_a_mistake_with_the_nearest_name(llmexp):
    said = llmexp("config", "model=llama3_8")
    assert said.code == 2
    assert "llama3_8b" in said.err
