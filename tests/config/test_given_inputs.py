"""Given inputs take the place of the stages that would make them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from llmexp.config.mistakes import CompositionError
from llmexp.data.shards import ShardWriter
from llmexp.model.config import ModelSpec
from llmexp.model.families.base import fitting_overrides
from llmexp.model.folder import read_spec, write_spec
from llmexp.stage.config import Need
from llmexp.stage.given import find_given
from llmexp.stage.locate import labels, locate
from llmexp.store.store import Store
from llmexp.tokenizer.bpe import make_bytes

SFT = ["chats", "chat_tokens", "sft"]


def inputs(composition) -> dict[str, dict[str, str]]:
    return {name: node.spec.inputs for name, node in composition.nodes.items() if node.spec.inputs}


def artifact(kind: str, name: str, summary: dict | None = None, chat: bool = False) -> None:
    """Publish an artifact, and put it where only its folder's name leads to it."""
    with Store([Path("elsewhere")]).build(kind, f"{len(name):032x}", stage="test", config={}) as build:
        assert build.out is not None
        if kind == "shards":
            for split in ("train", "heldout"):
                with ShardWriter(build.out / split, vocab_size=260, tokenizer="t", chat=chat):
                    pass
        (build.out / "content").write_text(name)
        build.publish(summary or {})
    assert build.artifact is not None
    shutil.move(build.artifact.path, name)


def model(name: str, *, template: bool = True, vocab_size: int = 4096) -> None:
    """A model's folder as a check sees it: its spec and its tokenizer."""
    Path(name).mkdir()
    write_spec(
        ModelSpec(d_model=32, n_layers=1, n_heads=2, ffn_dim=64, max_seq_len=512, vocab_size=vocab_size),
        Path(name),
    )
    make_bytes(out=Path(name), chat_template=None)
    if not template:
        (Path(name) / "tokenizer_config.json").write_text("{}")


@pytest.fixture(autouse=True)
def given(tmp_path, monkeypatch):
    """What the references of these tests name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in "XAB":
        model(name)
    Path("T").mkdir()
    make_bytes(out=Path("T"), chat_template=None)
    artifact("shards", "Y", chat=True)
    artifact("corpus", "P", {"kinds": {"prompt": {}}})
    artifact("corpus", "C", {"kinds": {"prose": {}}})


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
    composition = compose(*fitting(compose, "X"), "model.init_from=X")
    assert composition.target.spec.model.init_from == "X"
    assert inputs(composition) == {}


def fitting(compose, reference: str) -> list[str]:
    """The lines of a pretraining whose decoder is the one at ``reference``."""
    configured = compose("stage=pretrain", "loader.seq_len=256").target.spec.model
    return [
        "stage=pretrain",
        "loader.seq_len=256",
        *fitting_overrides(configured, read_spec(reference)).split(),
    ]


def cache_of_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local cache of the Hub, with a copy of X as someone/small in it."""
    commit = "0" * 40
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    shutil.copytree("X", folder / "models--someone--small" / "snapshots" / commit)
    (folder / "models--someone--small" / "refs").mkdir()
    (folder / "models--someone--small" / "refs" / "main").write_text(commit)


def test_weights_to_start_from_that_are_not_there_are_told(compose):
    (found,) = mistakes(compose, "stage=pretrain", "model.init_from=/no/such/folder")
    assert found[0] == "pretrain.model.init_from"
    assert "is no run, no artifact of" in found[1]
    (mistyped,) = mistakes(compose, "stage=pretrain", "model.init_from=X/nothing")
    assert mistyped[0] == "pretrain.model.init_from"


def test_weights_of_another_shape_are_told_with_the_lines_that_fit(compose):
    with pytest.raises(CompositionError, match=r"set model\.d_model=32 .*model\.max_seq_len=512") as raised:
        compose("stage=pretrain", "model=tiny", "model.init_from=X")
    assert [mistake.path for mistake in raised.value.mistakes] == ["pretrain.model.init_from"]


def test_weights_with_fewer_rows_than_the_tokenizer_has_tokens_are_told(compose):
    lines = [*fitting(compose, "X"), "model.init_from=X", "tokenizer.vocab_size=8000"]
    with pytest.raises(CompositionError, match="has a vocabulary of 4096, and the tokenizer one of 8000"):
        compose(*lines)


def test_a_check_lets_a_name_on_the_hub_pass_and_looks_at_its_local_copy(compose, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a check opened the network"))
    compose("stage=pretrain", "model.init_from=someone/small")
    compose("stage=sft", "model.init_from=someone/small")
    cache_of_the_hub(tmp_path / "hub", monkeypatch)
    (found,) = mistakes(compose, "stage=pretrain", "model=tiny", "model.init_from=someone/small")
    assert found[0] == "pretrain.model.init_from"


def test_weights_count_by_their_content_wherever_they_lie(compose, tmp_path, monkeypatch):
    cache_of_the_hub(tmp_path / "hub", monkeypatch)
    model("other", vocab_size=4097)
    prints = {}
    for name in ("X", "A", "someone/small", "other"):
        lines = ["inputs.shards=Y", "inputs.tokenizer=T", f"model.init_from={name}"]
        composition = compose(*fitting(compose, "X"), *lines)
        locate(composition, Store([Path("store")]), Path("runs"))
        prints[name] = composition.target.fingerprint
    assert prints["X"] == prints["A"] == prints["someone/small"] != prints["other"]


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


@pytest.mark.parametrize("line", ["inputs.models=[A,B]", "inputs.models='A,B'"])
def test_several_given_models_are_a_list_and_the_first_brings_the_tokenizer(compose, line):
    composition = compose("stage=evaluate", line)
    assert list(composition.nodes) == ["collect", "curate", "heldout", "evaluate"]
    assert inputs(composition) == {"evaluate": {"models": "A,B"}, "heldout": {"tokenizer": "A"}}


def test_a_plain_input_goes_to_the_stage_that_nothing_serves(compose, tree):
    text = (
        "_target_: llmexp.stage.config.PipelineSpec\nstages:\n"
        "  a: {stage: curate}\n  b: {stage: curate, needs: {corpus: a}}\n"
    )
    composition = compose("pipeline=mine", "inputs.corpus=C", tree=tree({"pipeline/mine.yaml": text}))
    assert inputs(composition) == {"a": {"corpus": "C"}}
    assert list(composition.nodes) == ["a", "b"]


def mistakes(compose, *lines: str) -> list[tuple[str, str]]:
    """Path and problem of every mistake."""
    with pytest.raises(CompositionError) as raised:
        compose(*lines)
    return [(mistake.path, mistake.problem) for mistake in raised.value.mistakes]


def test_what_does_not_exist_is_told_with_all_other_mistakes(compose):
    found = mistakes(
        compose, "stage=sft", "inputs.model=nobody", "inputs.shards=nothing", "loader.seq_len=9999"
    )
    assert [path for path, _ in found] == ["sft.inputs.model", "sft.inputs.shards"]
    assert all("is no run, no artifact of" in problem for _, problem in found)


def test_an_artifact_of_another_kind_is_told(compose):
    found = mistakes(compose, "stage=sft", "inputs.model=X", "inputs.shards=P")
    assert found == [("sft.inputs.shards", "'P' is of kind corpus, and a shards is needed")]


def test_the_context_of_a_given_model_is_known(compose):
    (found,) = mistakes(compose, "stage=sft", "inputs.model=X", "loader.seq_len=1024")
    assert found == ("sft.loader.seq_len", "1024 is more than the model's max_seq_len=512")


def test_plain_text_is_refused_where_conversations_are_needed(compose):
    artifact("shards", "plain", chat=False)
    (sft,) = mistakes(compose, "stage=sft", "inputs.model=X", "inputs.shards=plain")
    assert sft == (
        "sft.inputs.shards",
        "is plain text and holds no conversations: no token of it is an assistant's",
    )
    (grpo,) = mistakes(compose, "stage=grpo", "inputs.model=X", "inputs.prompts=C")
    assert grpo == (
        "grpo.inputs.prompts",
        "is plain text and holds no conversations: there is nothing to answer",
    )
    (made,) = mistakes(compose, "stage=sft", "chats.data=python_stdlib")
    assert made[0] == "sft.inputs.shards"


def test_a_given_model_without_a_chat_template_cannot_write_conversations(compose):
    model("mute", template=False)
    (grpo,) = mistakes(compose, "stage=grpo", "inputs.model=mute", "inputs.prompts=P")
    assert grpo[0] == "grpo.inputs.model"
    assert "no chat template" in grpo[1]
    (sft,) = mistakes(compose, "stage=sft", "inputs.model=mute")
    assert sft[0] == "chat_tokens.inputs.tokenizer"


def test_shards_with_ids_beyond_the_models_vocabulary_are_told(compose):
    model("small", vocab_size=128)
    (found,) = mistakes(compose, "stage=sft", "inputs.model=small", "inputs.shards=Y")
    assert found == ("sft.inputs.shards", "was written with a vocabulary of 260, and the model has 128")


def test_a_tokenizer_with_more_ids_than_the_models_vocabulary_is_told(compose):
    artifact("tokenizer", "large", {"vocab_size": 50_000})
    (found,) = mistakes(compose, "stage=pretrain", "inputs.tokenizer=large", "model.vocab_size=4096")
    assert found == ("pretrain.model.vocab_size", "4096 is less than tokenizer.vocab_size=50000")


def test_a_folder_that_holds_no_model_is_told(compose):
    Path("empty").mkdir()
    (found,) = mistakes(compose, "stage=export", "inputs.model=empty")
    assert found[0] == "export.inputs.model"
    assert "no model.json and no config.json" in found[1]


@pytest.mark.parametrize(
    "references, expected",
    [
        (["a/sft", "b/sft", "c/sft"], ["sft", "sft-2", "sft-3"]),
        (["a/sft", "sft-2", "b/sft"], ["sft", "sft-2", "sft-3"]),
        (["last"], ["last"]),
        (["/"], ["/"]),
    ],
)
def test_no_given_input_takes_the_name_of_another(references, expected):
    assert labels(references) == expected


@pytest.mark.parametrize("weights", ["[1]", "[1,2,3]"])
def test_a_mixture_has_a_weight_for_each_input_of_shards(compose, weights):
    lines = ["stage=sft", "inputs.model=X", "inputs.shards='Y,Y'"]
    compose(*lines, "loader.mixture=[1,2]")
    assert [path for path, _ in mistakes(compose, *lines, f"loader.mixture={weights}")] == [
        "sft.loader.mixture"
    ]


def a_run(name: str, *made: str) -> Path:
    """A run whose stages made these models; each is named as its stage."""
    run_dir = Path("outputs/runs/2026-01-31") / name
    links = {}
    for stage in made:
        artifact("model", stage)
        manifest = json.loads(Path(stage, "manifest.json").read_text())
        folder = Path("outputs/store/model") / manifest["fingerprint"]
        shutil.copytree(stage, folder)
        shutil.rmtree(stage)
        links[stage] = {"stage": stage, "kind": "model", "fingerprint": folder.name, "path": str(folder)}
        links[stage] |= {"needs": {}, "status": "done"}
        (run_dir / stage).mkdir(parents=True)
        (run_dir / stage / "run.json").write_text("{}")
    record = {"title": name, "command": "", "created": 1.0, "overrides": [], "status": "done"}
    (run_dir / "pipeline.json").write_text(json.dumps({**record, "stages": links}))
    return run_dir


def found(reference: str) -> Path:
    """The folder that a reference to a model leads to."""
    given = find_given(reference, Need("model"), Store([Path("outputs/store")]), Path("outputs/runs"))
    return given if isinstance(given, Path) else given.path


def fingerprint(run_dir: Path, stage: str) -> str:
    """Of what a stage of a run made."""
    return str(json.loads((run_dir / "pipeline.json").read_text())["stages"][stage]["fingerprint"])


def test_a_folder_that_is_there_is_meant_before_a_run_whose_name_is_like_it():
    run_dir = a_run("12-00-00-X-copied", "pretrain")
    artifact("model", "copied")
    assert found("X") == Path("X").resolve()
    assert found("copied").resolve() == Path("copied").resolve()
    assert found("12-00-00").name == fingerprint(run_dir, "pretrain")


def test_an_export_stands_for_a_model_where_the_run_has_no_model_itself():
    run_dir = a_run("12-00-00-mine", "pretrain")
    artifact("export", "an-export")
    kept = (
        Path("outputs/store/export") / json.loads(Path("an-export/manifest.json").read_text())["fingerprint"]
    )
    shutil.copytree("an-export", kept)
    record = json.loads((run_dir / "pipeline.json").read_text())
    link = {"stage": "export", "kind": "export", "fingerprint": kept.name, "path": str(kept)}
    record["stages"]["export"] = {**link, "needs": {}, "status": "done"}
    (run_dir / "pipeline.json").write_text(json.dumps(record))
    assert found("12-00-00-mine").name == fingerprint(run_dir, "pretrain")
    for reference in ("12-00-00-mine/export", kept.name, str(kept), "an-export"):
        assert found(reference).name in (kept.name, "an-export")


def test_last_is_the_newest_run_that_has_what_is_needed():
    run_dir = a_run("12-00-00-mine", "pretrain")
    newer = Path("outputs/runs/2026-01-31/13-00-00-corpus")
    newer.mkdir()
    record = json.loads((run_dir / "pipeline.json").read_text())
    (newer / "pipeline.json").write_text(json.dumps({**record, "created": 2.0, "stages": {}}))
    assert found("last").name == fingerprint(run_dir, "pretrain")


def test_a_fingerprint_is_meant_before_a_run_whose_name_is_like_it():
    first = a_run("12-00-00-mine", "pretrain")
    start = fingerprint(first, "pretrain")
    a_run(f"13-00-00-{start}", "sft-of-it")
    assert found(start).name == start


def test_a_run_means_its_last_model_and_the_folder_or_name_of_a_stage_that_stages():
    run_dir = a_run("12-00-00-mine", "pretrain", "sft-of-it")
    assert found("last").name == found(str(run_dir)).name == fingerprint(run_dir, "sft-of-it")
    for reference in ("last/pretrain", "mine/pretrain", str(run_dir / "pretrain")):
        assert found(reference).name == fingerprint(run_dir, "pretrain")
