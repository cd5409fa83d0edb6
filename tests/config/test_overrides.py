"""Which line wins, where lines go, and what a run keeps of them."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from llmexp.cli.compose import session
from llmexp.config.lines import quoted
from llmexp.config.spec import as_data
from llmexp.config.typed import Typing
from llmexp.stage.graph import composition_of

HEAD = "_target_: llmexp.stage.config."


@pytest.fixture
def recipe(tree):
    """A pipeline and an experiment over it, both with lines of their own."""
    return tree(
        {
            "pipeline/mine.yaml": HEAD
            + "PipelineSpec\nstages:\n"
            + "  texts: {stage: collect}\n"
            + "  bpe: {stage: train_tokenizer, needs: {corpus: texts}}\n"
            + "  tokens: {stage: tokenize, needs: {corpus: texts, tokenizer: bpe}}\n"
            + "  first: {stage: pretrain, needs: {shards: tokens, tokenizer: bpe},"
            + " overrides: [optimizer=muon, optimizer.lr=0.1, optimizer.ns_steps=3]}\n"
            + "  second: {stage: pretrain, needs: {shards: tokens, tokenizer: bpe}}\n",
            "experiment/mine.yaml": HEAD
            + "ExperimentSpec\noverrides: [pipeline=mine, optimizer.lr=0.2, first.seed=2]\n",
        }
    )


def test_the_pipelines_lines_come_first(compose, recipe):
    nodes = compose("pipeline=mine", tree=recipe).nodes
    assert (nodes["first"].spec.optimizer.lr, nodes["second"].spec.optimizer.lr) == (0.1, 3e-4)
    assert type(nodes["first"].spec.optimizer).__name__ == "MuonSpec"


def test_the_experiments_lines_win_over_the_pipelines(compose, recipe):
    nodes = compose("experiment=mine", tree=recipe).nodes
    assert [nodes[name].spec.optimizer.lr for name in ("first", "second")] == [0.2, 0.2]
    assert [nodes[name].spec.seed for name in ("first", "second")] == [2, 0]


def test_a_plain_line_of_the_command_wins_over_a_named_line_of_the_experiment(compose, recipe):
    nodes = compose("experiment=mine", "seed=3", tree=recipe).nodes
    assert [nodes[name].spec.seed for name in ("first", "second")] == [3, 3]


def test_a_named_line_wins_over_a_plain_one_wherever_it_stands(compose, recipe):
    for lines in (["first.seed=4", "seed=3"], ["seed=3", "first.seed=4"]):
        nodes = compose("experiment=mine", *lines, tree=recipe).nodes
        assert [nodes[name].spec.seed for name in ("first", "second")] == [4, 3]


def test_of_two_equal_lines_the_last_wins(compose):
    assert compose("seed=1", "seed=2").target.spec.seed == 2


def test_an_option_chosen_later_drops_what_only_the_earlier_one_has(compose, recipe):
    nodes = compose("pipeline=mine", "optimizer=adamw", tree=recipe).nodes
    assert type(nodes["first"].spec.optimizer).__name__ == "AdamWSpec"
    assert nodes["first"].spec.optimizer.lr == 0.1


def test_a_group_and_its_value_for_one_stage(compose):
    nodes = compose("stage=sft", "sft.optimizer=muon", "sft.optimizer.lr=1e-5").nodes
    assert type(nodes["sft"].spec.optimizer).__name__ == "MuonSpec"
    assert nodes["sft"].spec.optimizer.lr == 1e-5
    assert type(nodes["pretrain"].spec.optimizer).__name__ == "AdamWSpec"


def test_a_force_add_overrides_and_an_add_fills_what_is_null(compose):
    assert compose("++seed=7").target.spec.seed == 7
    assert compose("+model.vocab_size=5000").target.spec.model.vocab_size == 5000


def test_a_free_mapping_takes_new_keys_and_loses_them(compose):
    lines = [
        "stage=grpo",
        "reward=format_and_answer",
        "+reward.parts.third={_target_: llmexp.rollout.config.FormatSpec}",
    ]
    reward = compose(*lines, "+reward.weights.third=1").nodes["grpo"].spec.reward
    assert "third" in reward.parts
    assert set(reward.parts) == set(reward.weights)
    name = next(iter(compose(*lines[:2]).nodes["grpo"].spec.reward.parts))
    fewer = compose(*lines[:2], f"~reward.parts.{name}", f"~reward.weights.{name}").nodes["grpo"].spec.reward
    assert name not in fewer.parts


@pytest.mark.parametrize(
    "text",
    ["a b", "a=b", "it's", 'say "x"', "x,y", "[1]", "{a}", "50%", "007", "1e3", "null", "true", "ü", "a\\b"],
)
def test_a_quoted_string_arrives_letter_by_letter(compose, text):
    assert compose(f"tracking.experiment={quoted(text)}").root.tracking.experiment == text


def test_a_number_for_a_string_is_kept_letter_by_letter(compose):
    assert compose("tracking.experiment=007").root.tracking.experiment == "007"


def test_a_parts_of_a_list_can_be_set(compose):
    assert compose("optimizer.betas.1=0.99").target.spec.optimizer.betas == [0.9, 0.99]


def test_the_whole_printed_tree_loads_to_the_same_specs(compose, llmexp, recipe):
    words = ["experiment=mine", "second.optimizer=muon", "paths.outputs=elsewhere"]
    printed = llmexp(*words, "--cfg", "job", "--config-dir", recipe)
    assert printed.code == 0
    raw = OmegaConf.to_container(OmegaConf.create(printed.out))
    typing = Typing({})
    cfg = typing.node(raw, None, "")
    assert typing.mistakes == []
    cfg._set_flag("struct", False)
    cfg.hydra = {"runtime": {"choices": {}}, "overrides": {"task": []}}
    again, first = composition_of(cfg), compose(*words, tree=recipe)
    assert as_data(again.root) == as_data(first.root)
    assert {n: as_data(x.spec) for n, x in again.nodes.items()} == {
        n: as_data(x.spec) for n, x in first.nodes.items()
    }


def test_a_printed_node_is_an_option(compose, llmexp, tree):
    printed = llmexp("optimizer=muon", "optimizer.lr=0.5", "--cfg", "job", "--package", "pretrain.optimizer")
    folder = tree({"optimizer/mine.yaml": printed.out})
    assert compose("optimizer=mine", tree=folder).target.spec.optimizer.lr == 0.5


def test_every_setting_is_printed_also_when_no_file_lists_it(llmexp):
    printed = OmegaConf.create(llmexp("--cfg", "job", "--package", "pretrain.trainer").out)
    assert "bad_loss_limit" in printed


def test_a_part_that_is_not_there_is_a_mistake(llmexp):
    said = llmexp("--cfg", "job", "--package", "nobody")
    assert (said.code, "there is no such part" in said.err) == (2, True)


def test_an_own_option_named_like_a_shipped_one_is_refused(llmexp, tree):
    folder = tree({"optimizer/adamw.yaml": "_target_: llmexp.train.config.AdamWSpec\nlr: 0.25\n"})
    said = llmexp("check", "--config-dir", folder)
    assert (said.code, "optimizer/adamw.yaml" in said.err) == (2, True)


def test_an_option_may_build_on_another_of_its_group(compose, tree):
    folder = tree({"model/mine.yaml": "defaults: [tiny]\nn_layers: 3\n"})
    model, tiny = (
        compose("model=mine", tree=folder).target.spec.model,
        compose("model=tiny").target.spec.model,
    )
    assert (model.n_layers, model.d_model) == (3, tiny.d_model)


def test_the_search_path_adds_a_tree(compose, tree):
    folder = tree({"model/mine.yaml": "defaults: [tiny]\nn_layers: 3\n"})
    assert compose(f"hydra.searchpath=[file://{folder}]", "model=mine").target.spec.model.n_layers == 3


def test_hydras_record_holds_the_commands_own_words(recipe):
    opened = session([str(recipe)])
    words = ["experiment=mine", "first.optimizer.lr=0.5", "++seed=3", "stage=sft", "hydra.job.name=x"]
    cfg = opened.compose(words)
    assert list(cfg.hydra.overrides.task) == words[:4]
    assert "hydra.job.name=x" in list(cfg.hydra.overrides.hydra)
    assert cfg.hydra.job.override_dirname == "++seed=3,experiment=mine,first.optimizer.lr=0.5,stage=sft"


def test_a_value_of_the_environment_is_masked_where_it_is_printed(llmexp, monkeypatch):
    monkeypatch.setenv("LLMEXP_SECRET", "very-secret-word")
    words = ["tracking=mlflow", "tracking.uri=http://u:${oc.env:LLMEXP_SECRET}@host", "--cfg", "job"]
    resolved = llmexp(*words, "--resolve")
    assert "very-secret-word" not in resolved.out
    assert "***" in resolved.out
    assert "${oc.env:LLMEXP_SECRET}" in llmexp(*words).out


@pytest.mark.usefixtures("logging_as_before")
def test_hydras_information_is_there(llmexp):
    for what in ("config", "defaults", "defaults-tree", "plugins", "searchpath"):
        said = llmexp("--info", what)
        assert (said.code, said.err) == (0, "")
        assert said.out


def test_a_value_follows_another_of_its_stage_and_one_of_another_stage(compose):
    lines = ["stage=sft", "model.max_seq_len=600", "pretrain.loader.seq_len=${model.max_seq_len}"]
    nodes = compose(
        *lines, "sft.optimizer.lr=${stages.pretrain.optimizer.lr}", "pretrain.optimizer.lr=0.5"
    ).nodes
    assert nodes["pretrain"].spec.loader.seq_len == 600
    assert nodes["sft"].spec.optimizer.lr == 0.5
