"""Shell completion, asked as bash asks."""

from __future__ import annotations

import pytest


@pytest.fixture
def complete(llmexp, monkeypatch):
    """The words that bash is offered after a line."""

    def ask(line: str) -> list[str]:
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_POINT", str(len(line)))
        said = llmexp("--shell-completion", "query=bash")
        assert (said.code, said.err) == (0, "")
        return said.out.split()

    return ask


@pytest.mark.parametrize(
    "line, offered",
    [
        ("llmexp optimizer=", ["optimizer=adamw", "optimizer=muon"]),
        ("llmexp optimizer.l", ["optimizer.lr="]),
        ("llmexp model=ll", ["model=llama3_405b", "model=llama3_70b", "model=llama3_8b"]),
        ("llmexp optim", ["optimizer.", "optimizer="]),
        ("llmexp optimizer=muon optimizer.n", ["optimizer.nesterov=", "optimizer.ns_steps="]),
        ("llmexp experiment=quickstart sft.optimizer.l", ["sft.optimizer.lr="]),
        ("llmexp experiment=quickstart sft.optimizer=m", ["sft.optimizer=muon"]),
        ("llmexp stage=sf", ["stage=sft"]),
        ("llmexp tracking.ur", ["tracking.uri="]),
        ("llmexp check --json loader.pac", ["loader.packing="]),
        ("llmexp -m optimizer.lr=1,2 seed", ["seed="]),
        ("llmexp optimizer.lr=wrong loader.pac", ["loader.packing="]),
        ("llmexp che", ["check"]),
        ("llmexp --js", []),
    ],
)
def test_what_may_follow_is_offered(complete, line, offered):
    assert complete(line) == offered


def test_after_a_space_groups_stages_and_keys_are_offered(complete):
    offered = complete("llmexp ")
    assert {"optimizer=", "pretrain.", "seed=", "experiment="} <= set(offered)
    assert not [word for word in offered if word.startswith(("hydra", "_target_"))]


def test_options_of_a_persons_own_tree_are_offered(complete, tree):
    folder = tree({"model/mine.yaml": "_target_: llmexp.model.config.ModelSpec\n"})
    assert complete(f"llmexp --config-dir {folder} model=mi") == ["model=mine"]


def test_the_shells_code_is_printed(llmexp):
    assert "complete" in llmexp("--shell-completion", "install=bash").out
    assert llmexp("--shell-completion", "install=dash").code == 2
