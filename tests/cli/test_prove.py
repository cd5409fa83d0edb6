"""``llmexp prove``: what holds is shown to hold, and what does not is found and named."""

from __future__ import annotations

import json
import math
import shutil
import sys

import pytest
import torch
from debug_run import TRAINED
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from llmexp.data.config import LoaderSpec
from llmexp.data.shards import Shards
from llmexp.export.huggingface import export_huggingface
from llmexp.model.decoder import Decoder
from llmexp.model.io import load
from llmexp.prove.cut import Size, cut
from llmexp.prove.export import compare_export
from llmexp.prove.packing import compare_packed, pieces
from llmexp.prove.result import Comparison
from llmexp.prove.resume import compare_runs, compare_weights
from llmexp.stage.config import Pretrain
from llmexp.tokenizer.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model_folder(trained):
    """The folder of the model that was trained on text."""
    for manifest in (trained / "outputs" / "store" / "model").glob("*/manifest.json"):
        if json.loads(manifest.read_text())["stage"] == "pretrain":
            return manifest.parent
    raise AssertionError("no model was trained on text")


@pytest.fixture(scope="module")
def run_folder(trained):
    """The folder of the run that made it."""
    return next((trained / "outputs" / "runs").glob("*/*/pretrain"))


def files(trained) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (trained / "outputs").rglob("*")}


# resume


def test_a_killed_run_that_goes_on_equals_the_uninterrupted_one(inside, trained):
    before = files(trained)
    said = inside("prove", "resume", *TRAINED, "--steps", 8, "--json")
    assert said.code == 0, said.err
    proof = said.json
    assert proof["holds"] is True
    assert proof["first_difference"] is None
    compared = {one["what"]: one for one in proof["comparisons"]}
    assert compared["train/loss"]["numbers"] == 8
    assert compared["final weights"]["numbers"] > 1000
    assert compared["hash of the final weights"]["numbers"] == 1
    assert all(one["largest"] == 0 and one["tolerance"] == 0 for one in proof["comparisons"])
    assert "killed by SIGKILL in step 5" in proof["notes"][1]
    assert files(trained) == before, "a proof writes nothing among a person's own"


def journal_with(run_folder, out, change):
    out.mkdir()
    lines = []
    for line in (run_folder / "journal.jsonl").read_text().splitlines():
        record = json.loads(line)
        change(record)
        lines.append(json.dumps(record))
    (out / "journal.jsonl").write_text("\n".join(lines) + "\n")
    return out


def test_a_loss_that_differs_in_its_last_bit_is_found_and_named(run_folder, tmp_path):
    def last_bit(record):
        if record.get("s") == 3 and "train/loss" in record["m"]:
            record["m"]["train/loss"] = math.nextafter(record["m"]["train/loss"], math.inf)

    other = journal_with(run_folder, tmp_path / "other", last_bit)
    first, *rest = compare_runs(run_folder, other)
    assert first.what == "train/loss"
    assert first.first is not None
    assert first.first.startswith("step 3: ")
    assert 0 < first.largest < 1e-14
    assert all(one.holds for one in rest)


def test_a_step_that_is_missing_is_a_difference(run_folder, tmp_path):
    other = journal_with(
        run_folder, tmp_path / "other", lambda r: r["m"].pop("train/loss", None) if r.get("s") == 2 else None
    )
    value = loss_of_step(run_folder, 2)
    assert compare_runs(run_folder, other)[0].first == f"step 2: {value!r} and nothing"


def loss_of_step(run_folder, step):
    from llmexp.track.runs import read_metrics

    series = read_metrics(run_folder)["train/loss"]
    return series.values[series.steps.index(step)]


def test_metrics_of_the_clock_are_not_compared(run_folder, tmp_path):
    def slower(record):
        for key in record.get("m", {}):
            if key.startswith("perf/"):
                record["m"][key] *= 2

    assert all(
        one.holds for one in compare_runs(run_folder, journal_with(run_folder, tmp_path / "o", slower))
    )


def test_a_weight_that_differs_is_found_and_named(model_folder, tmp_path):
    tensors = load_file(model_folder / "model.safetensors")
    name = sorted(tensors)[1]
    tensors[name].view(-1)[5] += 1.0
    save_file(tensors, tmp_path / "model.safetensors")
    found = compare_weights(model_folder, tmp_path)
    assert not found.holds
    assert found.first is not None
    assert found.first.startswith(name)
    assert found.largest == pytest.approx(1.0)


# packing


def test_packed_documents_equal_each_alone(inside):
    said = inside("prove", "packing", *TRAINED, "--stage", "pretrain", "--json")
    assert said.code == 0, said.err
    logits, losses = said.json["comparisons"]
    assert logits["numbers"] > 10_000
    assert logits["largest"] < 1e-12
    assert losses["numbers"] == 8


@pytest.fixture(scope="module")
def packed_rows(trained):
    """Rows of several documents."""
    shards = Shards(next((trained / "outputs/store/shards").iterdir()), "train")
    source = LoaderSpec(seq_len=64, workers=0).build(shards=shards, seed=0, global_batch=8, micro_batch=1)
    return [row for row in source.step(0) if len(pieces(row)) > 1]


class Leaky(Decoder):
    """A decoder whose attention crosses documents."""

    def hidden(self, ids, positions=None, doc_ids=None, cache=None, last_only=False):
        """Documents are ignored."""
        del doc_ids
        return super().hidden(ids, positions, None, cache, last_only)


class WithoutRestart(Decoder):
    """A decoder whose positions go on from document to document."""

    def hidden(self, ids, positions=None, doc_ids=None, cache=None, last_only=False):
        """Positions are ignored."""
        count = None if positions is None else torch.arange(ids.shape[1])[None]
        return super().hidden(ids, count, doc_ids, cache, last_only)


def test_attention_across_documents_is_found(model_folder, packed_rows):
    model = load(model_folder)[0].double()
    assert all(one.holds for one in compare_packed(model, packed_rows))
    model.__class__ = Leaky
    logits, _ = compare_packed(model, packed_rows)
    assert not logits.holds
    assert logits.first is not None
    assert logits.first.startswith("row 0, document of tokens ")


def test_absolute_positions_that_do_not_restart_are_found():
    from llmexp.data.batch import Batch
    from llmexp.model.config import ModelSpec

    spec = ModelSpec(
        d_model=16, n_layers=1, n_heads=2, ffn_dim=16, vocab_size=9, max_seq_len=16, position="learned"
    )
    model = spec.build(seed=0).double().eval()
    ids = torch.arange(8)[None]
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]], dtype=torch.int32)
    row = Batch(
        ids=ids,
        targets=ids.roll(-1, 1),
        mask=torch.ones(1, 8, dtype=torch.bool),
        positions=positions,
        doc_ids=documents,
        sample_ids=[0],
    )
    assert all(one.holds for one in compare_packed(model, [row]))
    model.__class__ = WithoutRestart
    assert not compare_packed(model, [row])[0].holds


# export


@pytest.fixture(scope="module")
def exported(model_folder, tmp_path_factory):
    """The export of the model, and its texts."""
    out = tmp_path_factory.mktemp("exported")
    model, spec = load(model_folder)
    tokenizer = Tokenizer.load(model_folder)
    export_huggingface(model, spec, model_folder, out, {}, end_ids=sorted(tokenizer.end_ids))
    texts = [
        tokenizer.encode(text, bos=True) for text in ("the model reads a list", "a text of the token and")
    ]
    return model, tokenizer, out, texts


def test_an_export_computes_what_our_decoder_computes(exported):
    model, tokenizer, out, texts = exported
    found = compare_export(model, tokenizer, out, texts, context_length=256)
    assert all(one.holds for one in found)
    assert found[0].what == "logits of every token"
    assert found[1].numbers > 2


def test_a_weight_that_was_exported_wrongly_is_found(exported, tmp_path):
    model, tokenizer, out, texts = exported
    shutil.copytree(out, tmp_path / "wrong")
    tensors = load_file(tmp_path / "wrong" / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors[name] = tensors[name].flip(0) * 50
    save_file(tensors, tmp_path / "wrong" / "model.safetensors", metadata={"format": "pt"})
    logits = compare_export(model, tokenizer, tmp_path / "wrong", texts, context_length=256)[0]
    assert not logits.holds
    assert logits.first is not None
    assert logits.first.startswith("text 0, token and id [")


def test_prove_export_trains_exports_and_compares(inside):
    said = inside("prove", "export", *TRAINED, "--stage", "pretrain", "--steps", 4, "-q")
    assert said.code == 0, said.err
    assert "first number that differs: none" in said.out
    assert "ids of the greedy text" in said.out


def test_without_transformers_the_proof_of_exports_says_what_to_install(inside, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    monkeypatch.delitem(sys.modules, "transformers")
    said = inside("prove", "export", *TRAINED)
    assert said.code == 2
    assert "pip install transformers" in said.err


# all of them


@pytest.mark.parametrize(
    "words, told",
    [
        ((), "say what to prove"),
        (("resum", *TRAINED), "Did you mean 'resume'?"),
        (("resume", *TRAINED, "--steps", "2"), "--steps 2 is out of range"),
        (("resume", *TRAINED, "--stage", "chats"), "--stage chats: no stage of that name trains"),
        (
            ("packing", "stage=collect", "data=text_files", "data.path=notes"),
            "no stage of this composition trains",
        ),
        (("packing", *TRAINED, "loader.packing=pad"), "holds two documents"),
    ],
)
def test_what_cannot_be_proved_is_a_mistake(inside, words, told):
    said = inside("prove", *words)
    assert said.code == 2
    assert told in said.err


def test_a_cut_stage_keeps_its_model_and_gets_a_warm_up_that_fits():
    from llmexp.cli.compose import compose

    words = ["model=debug", "loader.seq_len=64", "scheduler=wsd", "scheduler.warmup_steps=100"]
    composition, _ = compose([*words, "trainer.max_steps=1000", "trainer.global_batch=64"], [])
    whole = composition.target.spec
    assert isinstance(whole, Pretrain)
    small = cut(whole, Size(steps=12, global_batch=8), world=3)
    assert isinstance(small, Pretrain)
    assert small.model == whole.model
    assert small.trainer.max_steps == 12
    assert small.trainer.global_batch == 6
    assert not list(small.scheduler.check_steps(12))
    assert whole.scheduler.warmup_steps == 100


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_without_tolerance_two_numbers_are_equal_when_their_bits_are(one, other):
    found = Comparison("x")
    found.add("here", one, other)
    assert found.holds == (math.copysign(1, one) == math.copysign(1, other) and one == other)


def test_not_a_number_equals_itself_and_nothing_else():
    found = Comparison("x", tolerance=1.0)
    found.add("here", math.nan, math.nan)
    assert found.holds
    found.add("there", math.nan, 0.0)
    assert found.first is not None
    assert found.first.startswith("there")
    assert math.isnan(found.largest)


def test_a_comparison_of_nothing_does_not_hold():
    assert not Comparison("x").holds
