"""The loss and its gradient do not depend on how the global batch is cut."""

import pytest
import tiny_training as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.mesh import Mesh
from llmexp.train.config import Precision, Recompute
from llmexp.train.step import Gradient


def gradient(model, objective=None, **changes):
    settings_ = {"seed": 0, "bf16": False, "grad_clip": None} | changes
    return Gradient(model, objective or CrossEntropy(), Mesh(), **settings_)


def outcome_and_gradient(micro_batches, **changes):
    model = tiny.model()
    outcome = gradient(model, **changes)(micro_batches, 0, lambda loss: loss.backward())
    return outcome, torch.cat([p.grad.flatten() for p in model.parameters()])


def micro(n_tokens):
    batch = tiny.Sequences(rows=1).batch(0)
    batch.mask = torch.arange(tiny.SEQ)[None] < n_tokens
    return batch


@settings(max_examples=15, deadline=None)
@given(step=st.integers(0, 1000), rows=st.integers(2, 6), data=st.data())
def test_any_cut_gives_the_same_loss_and_gradient(step, rows, data):
    batch = tiny.Sequences(rows=rows).batch(step)
    whole, expected = outcome_and_gradient([batch])
    cut, got = outcome_and_gradient(tiny.cut(batch, data.draw(st.integers(1, rows))))
    assert cut.loss == pytest.approx(whole.loss, abs=1e-6)
    assert torch.allclose(got, expected, atol=1e-6)
    assert (cut.samples, cut.tokens, cut.counted) == (whole.samples, whole.tokens, whole.counted)


def test_a_micro_batch_in_which_nothing_counts_adds_nothing():
    batch = tiny.Sequences().batch(0)
    whole, expected = outcome_and_gradient([batch])
    more, got = outcome_and_gradient([batch, micro(0)])
    assert more.loss == whole.loss
    assert torch.equal(got, expected)


def test_the_logged_norm_is_the_whole_gradient_s_before_clipping():
    batches = tiny.cut(tiny.Sequences().batch(0), 2)
    free, whole = outcome_and_gradient(batches)
    clipped, scaled = outcome_and_gradient(batches, grad_clip=free.grad_norm / 4)
    assert clipped.grad_norm == free.grad_norm == pytest.approx(float(whole.norm()), rel=1e-6)
    assert float(scaled.norm()) == pytest.approx(free.grad_norm / 4, rel=1e-4)


def test_dropout_is_a_function_of_seed_and_step():
    def loss(seed, step):
        model = tiny.model(dropout=0.5).train()
        return gradient(model, seed=seed)(tiny.Sequences().step(0), step, lambda loss: loss.backward()).loss

    torch.manual_seed(7)
    first = loss(0, 3)
    torch.manual_seed(8)
    assert loss(0, 3) == first
    assert loss(0, 4) != first
    assert loss(1, 3) != first


@pytest.mark.parametrize("change", [{"micro_batch": 1}, {"activation_checkpointing": Recompute.block}])
def test_what_only_saves_memory_changes_no_loss(tmp_path, change):
    plain, other = tiny.Recorder(), tiny.Recorder()
    tiny.train(tmp_path / "a", tracker=plain)
    cuts = 4 if "micro_batch" in change else 2
    tiny.train(
        tmp_path / "b", tracker=other, source=tiny.Sequences(cuts=cuts), trainer=tiny.trainer(**change)
    )
    assert list(other.values["train/loss"].values()) == pytest.approx(
        list(plain.values["train/loss"].values()), abs=1e-5
    )


def test_recomputing_blocks_gives_the_same_weights_with_dropout_and_leaves_the_model_as_it_was(tmp_path):
    model = tiny.model(dropout=0.3)
    expected = tiny.train(tmp_path / "a", model=tiny.model(dropout=0.3))
    recompute = tiny.trainer(activation_checkpointing=Recompute.block)
    result = tiny.train(tmp_path / "b", model=model, trainer=recompute)
    assert result.weights_hash == expected.weights_hash
    assert model.recompute is False


def test_bf16_keeps_float32_weights_and_learns_about_the_same(tmp_path):
    full, half, model = tiny.Recorder(), tiny.Recorder(), tiny.model()
    tiny.train(tmp_path / "a", tracker=full)
    tiny.train(tmp_path / "b", tracker=half, model=model, trainer=tiny.trainer(precision=Precision.bf16))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert half.values["train/loss"] != full.values["train/loss"]
    assert half.values["train/loss"][12] == pytest.approx(full.values["train/loss"][12], rel=0.05)
