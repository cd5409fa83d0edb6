"""Models measured side by side, on small real models."""

import itertools
import json
import lzma
import math
import shutil
from pathlib import Path

import pytest

from llmexp.data.shards import Shards
from llmexp.evaluate.config import EvaluationSpec
from llmexp.evaluate.documents import HeldOut
from llmexp.evaluate.result import summary, tracked
from llmexp.evaluate.run import evaluate
from llmexp.evaluate.scores import NothingToScore
from llmexp.model.io import load, save
from llmexp.track.params import jsonable
from llmexp.track.progress import Interrupted, Progress
from llmexp.track.tracker import Tracker

FIGURES = {"loss", "perplexity", "bits_per_byte", "ece", "accuracy", "assistant_loss", "exact_match"}


class Kept(Tracker):
    """A tracker that keeps metrics in memory."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict]] = []

    def metrics(self, values, step) -> None:
        self.logged.append((step, dict(values)))


def measure(models, tmp_path: Path, tracker: Tracker | None = None, should_stop=lambda: False, **given):
    settings = {"seq_len": 32, "sample_max_new_tokens": 4, "exact_match_max_new_tokens": 4, "samples": 2}
    spec = EvaluationSpec(**(settings | given.pop("spec", {})))
    return evaluate(
        models=models,
        spec=spec,
        out=tmp_path,
        progress=Progress(quiet=True),
        tracker=tracker or Tracker(),
        should_stop=should_stop,
        **given,
    )


@pytest.fixture(scope="module")
def whole(models, shards, chats, tmp_path_factory):
    problems = [
        {"id": "1", "messages": [{"role": "user", "content": "What is 1 + 2?"}], "answer": "3"},
        {"id": "2", "messages": [{"role": "user", "content": "What is 4 + 4?"}], "answer": "8"},
    ]
    folder, tracker = tmp_path_factory.mktemp("out"), Kept()
    result = measure(models, folder, tracker, shards=shards, chats=chats, problems=problems)
    return result, folder, tracker


def test_every_model_has_every_figure_and_the_untrained_one_comes_first(whole):
    table = whole[0]["table"]
    assert list(table) == ["initial", "pretrain", "sft"]
    assert all(set(row) == FIGURES for row in table.values())


def test_what_is_returned_is_written_as_strict_json(whole):
    result, folder, _ = whole

    def refuse(name: str):
        raise AssertionError(name)

    text = (folder / "evaluation.json").read_text()
    assert json.loads(text, parse_constant=refuse) == jsonable(result)


def test_bits_per_byte_are_the_loss_in_bits_by_the_bytes_of_the_text(whole, shards):
    result = whole[0]
    heldout, row = result["heldout"], result["table"]["sft"]
    assert heldout["bytes"] == Shards(shards, "heldout").header.n_bytes
    expected = row["loss"] * heldout["tokens"] / math.log(2) / heldout["bytes"]
    assert row["bits_per_byte"] == pytest.approx(expected, rel=1e-9)


def test_every_document_is_counted_once(whole, shards):
    header = Shards(shards, "heldout").header
    assert whole[0]["heldout"]["documents"] == header.n_docs == 5
    assert whole[0]["heldout"]["tokens"] == header.n_tokens - header.n_docs


def test_the_baselines_stand_beside_the_models(whole):
    baselines = whole[0]["baselines"]
    texts = ["import json\n", "Return a list of names. ✓", "x = 1\n" * 30, "naïve", "The end."]
    size = len(lzma.compress("\n".join(texts).encode(), preset=9))
    assert baselines["xz_bits_per_byte"] == pytest.approx(8 * size / whole[0]["heldout"]["bytes"])
    assert 0 < baselines["unigram_bits_per_byte"] < 8


def test_only_what_an_assistant_wrote_counts_in_the_assistant_loss(whole):
    # One byte and the token that ends the turn, twice.
    assert whole[0]["chats"] == {"documents": 2, "tokens": 4}


def test_each_sample_has_the_text_of_each_model(whole):
    samples = whole[0]["samples"]
    assert [s["kind"] for s in samples] == ["text", "text", "chat", "chat"]
    assert all(set(s["completions"]) == {"initial", "pretrain", "sft"} for s in samples)
    assert samples[2]["prompt"] == "What is 1 + 2?"
    assert samples[2]["answer"] == "3"


def test_the_tracker_gets_a_curve_over_the_models(whole):
    logged = whole[2].logged
    assert [step for step, _ in logged] == [0, 1, 2]
    assert logged[2][1]["eval/heldout/loss"] == whole[0]["table"]["sft"]["loss"]
    assert logged[2][1]["eval/problems/exact_match/sft"] == whole[0]["table"]["sft"]["exact_match"]
    assert "eval/chats/loss" in logged[0][1]


@pytest.mark.parametrize("micro_batch", [1, 2, 3])
def test_the_figures_do_not_depend_on_the_micro_batch(whole, models, shards, chats, tmp_path, micro_batch):
    """Case K05, on a real decoder."""
    spec = {"micro_batch": micro_batch, "include_initial": False, "samples": 0}
    found = measure(models, tmp_path, shards=shards, chats=chats, spec=spec)["table"]["sft"]
    reference = whole[0]["table"]["sft"]
    for figure in ("loss", "perplexity", "bits_per_byte", "ece", "assistant_loss"):
        assert found[figure] == pytest.approx(reference[figure], rel=1e-6, abs=1e-6)


def test_the_same_evaluation_gives_the_same_samples(whole, models, shards, chats, problems, tmp_path):
    again = measure(models, tmp_path, shards=shards, chats=chats, problems=problems)
    assert again["samples"] == whole[0]["samples"]


def test_an_empty_set_ends_with_a_message_and_logs_nothing(models, empty_shards, tmp_path):
    """Case K05: the empty set."""
    tracker = Kept()
    with pytest.raises(NothingToScore, match="no token to score"):
        measure(models, tmp_path, tracker, shards=empty_shards)
    assert tracker.logged == []
    assert not list(tmp_path.iterdir())


def test_nothing_to_measure_is_refused(models, tmp_path):
    with pytest.raises(NothingToScore, match="nothing to measure"):
        measure(models, tmp_path)


def test_no_model_is_refused(shards, tmp_path):
    with pytest.raises(ValueError, match="no model"):
        measure({}, tmp_path, shards=shards)


def test_a_model_named_like_the_untrained_row_is_refused(models, shards, tmp_path):
    with pytest.raises(ValueError, match="include_initial"):
        measure({"initial": models["sft"]}, tmp_path, shards=shards)


def test_models_with_different_tokenizers_are_refused(models, make_model, shards, tmp_path):
    other = make_model(3)
    config = json.loads((other / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": "<|endoftext|>"}))
    with pytest.raises(ValueError, match="different tokenizers"):
        measure({**models, "other": other}, tmp_path, shards=shards)


def test_shards_of_another_tokenizer_are_refused(models, shards, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(shards, copy)
    header = json.loads((copy / "heldout/header.json").read_text())
    (copy / "heldout/header.json").write_text(json.dumps(header | {"tokenizer": "0" * 32}))
    with pytest.raises(ValueError, match="another tokenizer"):
        measure(models, tmp_path, shards=copy)


def test_problems_without_a_chat_template_are_refused(make_model, problems, tmp_path):
    folder = make_model(5)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for file in folder.glob("*.jinja"):
        file.unlink()
    with pytest.raises(ValueError, match="chat template"):
        measure({"base": folder}, tmp_path, problems=problems)


def test_a_model_with_nan_weights_is_named(make_model, problems, tmp_path):
    folder = make_model(6)
    model, spec = load(folder)
    model.head_weight.data.fill_(math.nan)
    save(model, spec, folder)
    with pytest.raises(FloatingPointError, match="the model sft is broken"):
        measure({"sft": folder}, tmp_path, problems=problems, spec={"include_initial": False})


def test_the_summary_is_finite_plain_data(whole):
    told = summary(whole[0])
    assert told["tokens"] == whole[0]["heldout"]["tokens"]
    json.dumps(told, allow_nan=False)


def test_a_stop_leaves_nothing_written_or_logged(models, shards, tmp_path):
    tracker = Kept()
    with pytest.raises(Interrupted):
        measure(models, tmp_path, tracker, should_stop=lambda: True, shards=shards)
    assert tracker.logged == []
    assert not list(tmp_path.iterdir())


def test_a_shorter_context_of_a_model_bounds_the_windows_of_all(models, make_model, shards, tmp_path):
    both = {"long": models["sft"], "short": make_model(4, max_seq_len=16)}
    result = measure(both, tmp_path, shards=shards, spec={"samples": 0, "include_initial": False})
    assert result["heldout"]["seq_len"] == 16


def test_without_shards_only_the_problems_are_measured(models, problems, tmp_path):
    result = measure(models, tmp_path, problems=problems, spec={"include_initial": False})
    assert set(result["table"]["sft"]) == {"exact_match"}


def test_a_prompt_that_fills_the_context_counts_as_wrong(models, problems, tmp_path):
    problems[0]["messages"][0]["content"] *= 50
    result = measure(models, tmp_path, problems=problems, spec={"include_initial": False})
    assert result["problems"] == 2
    assert result["samples"][-2]["completions"]["sft"] == ""


@pytest.mark.parametrize(
    "limits, most", [({"max_documents": 2}, 2), ({"max_tokens": 1}, 1), ({"max_documents": 99}, 5)]
)
def test_a_limit_takes_whole_documents(shards, limits, most):
    assert len(HeldOut(shards, **limits)) == most


def test_a_longer_limit_only_adds_documents(shards):
    chosen = [set(HeldOut(shards, max_documents=n).indices.tolist()) for n in range(1, 6)]
    assert all(a < b for a, b in itertools.pairwise(chosen))


def test_infinite_figures_reach_the_tracker_as_numbers():
    (values,) = [v for _, v in tracked({"table": {"sft": {"perplexity": "inf"}}})]
    assert values["eval/heldout/perplexity"] == math.inf


def test_the_spec_refuses_an_overlap_as_long_as_the_context():
    (mistake,) = EvaluationSpec(seq_len=8, overlap=8).check()
    assert mistake.path == "overlap"
