"""Given inputs take the place of the stages that would make them."""

from __future__ import annotations

import pytest

SFT = ["chats", "chat_tokens", "sft"]


def inputs(composition) -> dict[str, dict[str, str]]:
    return {name: node.spec.inputs for name, node in composition.nodes.items() if node.spec.inputs}


@pytest.mark.parametrize(
    "line", ["inputs.model=X", "model.init_from=X", "sft.inputs.model=X", "sft.model.init_from=X"]
)
def test_a_given_model_spares_all_that_would_make_it_and_brings_its_tokenizer(compose, line):
    composition = compose("stage=sft", line)
    assert list(composition.nodes) == SFT
    assert inputs(composition) == {"sft": {"model": "X"}, "chat_tokens": {"tokenizer": "X"}}
    assert composition.overrides == ["stage=sft", line]


def test_all_inputs_given_leave_the_stage_alone(compose):
    composition = compose("stage=sft", "inputs.model=X", "inputs.shards=Y")
    assert list(composition.nodes) == ["sft"]


def test_a_given_tokenizer_stands_for_every_stage_that_needs_it(compose):
    composition = compose("stage=pretrain", "inputs.tokenizer=T")
    assert list(composition.nodes) == ["collect", "curate", "tokens", "pretrain"]
    assert inputs(composition) == {"tokens": {"tokenizer": "T"}, "pretrain": {"tokenizer": "T"}}


def test_pretraining_starts_from_weights_by_its_own_setting(compose):
    composition = compose("stage=pretrain", "model.init_from=X")
    assert composition.target.spec.model.init_from == "X"
    assert inputs(composition) == {}


@pytest.mark.parametrize("line", ["sft.model.init_from=X", "sft.inputs.model=X"])
def test_in_a_named_pipeline_lists_of_models_keep_naming_the_stage(compose, line):
    composition = compose("pipeline=quickstart", line)
    assert inputs(composition) == {"sft": {"model": "X"}}
    assert composition.nodes["evaluate"].needs["models"] == ["pretrain", "sft", "grpo"]
    assert "pretrain" in composition.nodes


def test_a_stage_that_only_a_given_need_asked_for_is_spared(compose):
    composition = compose("pipeline=quickstart", "grpo.inputs.prompts=P")
    assert "prompts" not in composition.nodes
    assert inputs(composition) == {"grpo": {"prompts": "P"}, "evaluate": {"prompts": "P"}}


def test_an_experiments_lines_for_spared_stages_are_no_mistake(compose, tree):
    lines = "[stage=sft, pretrain.model=small, model.dropout=0.1]"
    folder = tree(
        {"experiment/mine.yaml": f"_target_: llmexp.stage.config.ExperimentSpec\noverrides: {lines}\n"}
    )
    assert compose("experiment=mine", tree=folder).nodes["pretrain"].spec.model.dropout == 0.1
    assert list(compose("experiment=mine", "inputs.model=X", tree=folder).nodes) == SFT


def test_a_pipelines_own_lines_may_give_inputs(compose, tree):
    text = (
        "_target_: llmexp.stage.config.PipelineSpec\nstages:\n"
        "  chats: {stage: collect, overrides: [data=docstring_chats]}\n"
        "  tokens: {stage: tokenize, needs: {corpus: chats}, overrides: [inputs.tokenizer=X]}\n"
        "  sft: {stage: sft, needs: {shards: tokens}, overrides: [model.init_from=X]}\n"
    )
    composition = compose("pipeline=mine", tree=tree({"pipeline/mine.yaml": text}))
    assert inputs(composition) == {"tokens": {"tokenizer": "X"}, "sft": {"model": "X"}}


def test_several_given_models_are_a_list(compose):
    composition = compose("stage=evaluate", "inputs.models=[A,B]")
    assert composition.target.spec.inputs == {"models": "A,B"}
    assert "pretrain" not in composition.nodes


def test_a_plain_input_goes_to_the_stage_that_nothing_serves(compose, tree):
    text = (
        "_target_: llmexp.stage.config.PipelineSpec\nstages:\n"
        "  a: {stage: curate}\n  b: {stage: curate, needs: {corpus: a}}\n"
    )
    composition = compose("pipeline=mine", "inputs.corpus=C", tree=tree({"pipeline/mine.yaml": text}))
    assert inputs(composition) == {"a": {"corpus": "C"}}
    assert list(composition.nodes) == ["a", "b"]
