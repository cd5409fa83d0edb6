"""What happens between steps: held-out figures, early stop, interrupts, what is logged."""

import itertools

import pytest
import tiny_training as tiny
import torch

from llmexp.track.progress import Interrupted, Progress
from llmexp.train.config import StopWhen
from llmexp.train.run import Compute
from llmexp.train.state import weights_hash


class Figures:
    """Held-out losses as told, in order; remembers the weights it was asked about."""

    def __init__(self, losses):
        self._losses = iter(losses)
        self.hashes = []

    def __call__(self, model):
        assert not model.training
        assert not torch.is_grad_enabled()
        self.hashes.append(weights_hash(model))
        return {"val/loss": next(self._losses), "val/bits_per_byte": 1.0}


def test_a_request_to_stop_saves_at_the_next_boundary_and_says_where(tmp_path):
    asked = iter([False, False, True])
    with pytest.raises(Interrupted, match="step-00000003"):
        tiny.train(tmp_path, should_stop=lambda: next(asked))
    assert (tmp_path / "checkpoints" / "step-00000003" / "manifest.json").exists()


def test_a_request_to_stop_on_the_last_step_is_no_interruption(tmp_path):
    asked = iter([False] * 11 + [True])
    assert tiny.train(tmp_path, should_stop=lambda: next(asked)).steps == 12


def test_held_out_figures_come_every_so_many_steps_and_at_the_end(tmp_path):
    tracker = tiny.Recorder()
    result = tiny.train(
        tmp_path,
        tracker=tracker,
        validate=Figures([3.0, 1.0, 2.0]),
        trainer=tiny.trainer(val_every=5),
    )
    assert tracker.values["val/loss"] == {5: 3.0, 10: 1.0, 12: 2.0}
    assert tracker.values["val/bits_per_byte"].keys() == {5, 10, 12}
    assert (result.best_val, result.best_step) == (1.0, 10)


def test_evaluating_changes_nothing_that_is_trained(tmp_path):
    def noisy(model):
        torch.rand(len(list(model.parameters())))
        return {"val/loss": 1.0}

    model = tiny.model(dropout=0.2)
    with_it = tiny.train(tmp_path / "a", model=model, validate=noisy, trainer=tiny.trainer(val_every=1))
    without = tiny.train(tmp_path / "b", model=tiny.model(dropout=0.2))
    assert with_it.weights_hash == without.weights_hash


def test_a_held_out_loss_that_keeps_rising_ends_the_run_with_the_best_weights(tmp_path):
    model, figures = tiny.model(), Figures([3.0, 2.0, 2.5, 2.4])
    stopping = tiny.trainer(val_every=2, stop_when=StopWhen.val_loss_rises, patience=2)
    result = tiny.train(tmp_path, model=model, validate=figures, trainer=stopping)
    assert (result.steps, result.best_step, result.stopped_early) == (8, 4, True)
    assert result.weights_hash == weights_hash(model) == figures.hashes[1]
    again = tiny.train(tmp_path, model=tiny.model(seed=3), validate=figures, trainer=stopping)
    assert again.weights_hash == result.weights_hash


@pytest.mark.parametrize("name, sign", [("val/loss", 1), ("val/reward", -1)])
def test_a_training_ends_by_telling_its_best_step_and_figure(tmp_path, capsys, name, sign):
    losses = iter([3.0, 2.0, 2.5, 2.4])
    stopping = tiny.trainer(val_every=2, stop_when=StopWhen.val_loss_rises, patience=2)
    tiny.train(
        tmp_path, validate=lambda _: {name: sign * next(losses)}, trainer=stopping, progress=Progress()
    )
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "best step 4, which is kept, stopped early" in last
    assert f"{name.replace('/', ' ')} {sign * 2.0:.3f}" in last


def test_a_held_out_loss_that_is_no_number_is_never_the_best(tmp_path):
    stopping = tiny.trainer(val_every=2, stop_when=StopWhen.val_loss_rises, patience=3)
    result = tiny.train(tmp_path, validate=Figures([float("nan"), 2.0, 1.0, 3.0, 2.0, 2.0]), trainer=stopping)
    assert (result.best_val, result.best_step) == (1.0, 6)


def test_an_early_stop_s_patience_survives_a_restart(tmp_path):
    stopping = tiny.trainer(val_every=1, stop_when=StopWhen.val_loss_rises, patience=3)
    asked = iter([False, False, True])
    with pytest.raises(Interrupted):
        tiny.train(
            tmp_path, validate=Figures([1.0, 2.0, 2.0]), should_stop=lambda: next(asked), trainer=stopping
        )
    assert tiny.train(tmp_path, validate=Figures([2.0]), trainer=stopping).steps == 4


def test_each_step_logs_loss_gradient_norm_and_rate_and_speed_every_so_often(tmp_path):
    tracker = tiny.Recorder()
    tiny.train(
        tmp_path,
        tracker=tracker,
        trainer=tiny.trainer(log_every=5),
        compute=Compute(flops_per_token=100.0, peak_flops=1e6),
    )
    for key in ("train/loss", "train/grad_norm", "train/lr"):
        assert list(tracker.values[key]) == list(range(1, 13))
    assert list(tracker.values["perf/tokens_per_second"]) == [5, 10, 12]
    speed, mfu = tracker.values["perf/tokens_per_second"][5], tracker.values["perf/mfu"][5]
    assert mfu == pytest.approx(speed * 100.0 / 1e6)


def test_tokens_end_a_run_at_the_step_that_reaches_them(tmp_path):
    result = tiny.train(tmp_path, trainer=tiny.trainer(max_steps=None, max_tokens=4 * tiny.SEQ * 2 + 1))
    assert (result.steps, result.tokens) == (3, 3 * 4 * tiny.SEQ)


def test_seconds_end_a_run_and_add_up_over_restarts(tmp_path):
    arguments = {"trainer": tiny.trainer(max_steps=None, max_seconds=2.0)}
    asked = itertools.chain([False, False], itertools.repeat(True))
    with pytest.raises(Interrupted):
        tiny.train(tmp_path, should_stop=lambda: next(asked), **arguments)
    result = tiny.train(tmp_path, **arguments)
    assert 2.0 <= result.seconds < 6.0


def test_training_learns(tmp_path):
    tracker = tiny.Recorder()
    tiny.train(tmp_path, tracker=tracker, trainer=tiny.trainer(max_steps=60, checkpoint_every=None))
    losses = list(tracker.values["train/loss"].values())
    assert losses[-1] < losses[0] - 0.5
