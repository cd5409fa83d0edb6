"""A bad loss never steps the optimizer, and what follows is as configured."""

import json
import math

import pytest
import tiny_training as tiny
import torch

from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.track.progress import Progress
from llmexp.train.bad_losses import why_bad
from llmexp.train.config import OnBadLoss, StopWhen
from llmexp.train.errors import BadLoss, NoCountedTokens
from llmexp.train.state import weights_hash


class Poisoned(CrossEntropy):
    """Cross entropy that is multiplied by ``factor`` on the global batches given."""

    def __init__(self, steps, factor=math.nan):
        self._steps, self._factor = steps, factor

    def __call__(self, model, batch):
        loss = super().__call__(model, batch)
        if not any(sample // 4 in self._steps for sample in batch.sample_ids):
            return loss
        return type(loss)(loss.total * self._factor)


def policy(name, **changes):
    return tiny.trainer(on_bad_loss=OnBadLoss[name], **changes)


def test_stop_names_the_step_the_documents_and_the_last_good_checkpoint(tmp_path):
    tracker = tiny.Recorder()
    with pytest.raises(BadLoss) as caught:
        tiny.train(tmp_path, objective=Poisoned({6}), tracker=tracker)
    error = caught.value
    assert (error.step, error.exit_code, error.repeated) == (7, 1, False)
    assert error.documents == [f"document-{i}" for i in range(24, 28)]
    assert error.checkpoint == tmp_path / "checkpoints" / "step-00000004"
    for said in ("step 7", "document-24", "step-00000004", "trainer.on_bad_loss"):
        assert said in str(error)
    assert math.isnan(tracker.values["train/loss"][7])


def test_a_bad_loss_leaves_the_weights_of_the_step_before(tmp_path):
    model, good = tiny.model(), tiny.model()
    tiny.train(tmp_path / "good", model=good, trainer=tiny.trainer(max_steps=6))
    with pytest.raises(BadLoss):
        tiny.train(tmp_path / "bad", model=model, objective=Poisoned({6}))
    assert weights_hash(model) == weights_hash(good)


def test_the_same_step_bad_again_after_a_restart_says_that_it_is_no_chance(tmp_path):
    for repeated in (False, True):
        with pytest.raises(BadLoss) as caught:
            tiny.train(tmp_path, objective=Poisoned({6}))
        assert caught.value.repeated is repeated


def test_after_a_rollback_the_best_weights_are_not_those_of_the_steps_that_were_left(tmp_path):
    hashes, losses = [], iter([3.0, 2.0, 2.5, 2.5, 1.0, 2.5, *[2.5] * 8])

    def validate(model):
        hashes.append(weights_hash(model))
        return {"val/loss": next(losses)}

    trainer = policy("rollback", val_every=1, stop_when=StopWhen.val_loss_rises, patience=99)
    result = tiny.train(tmp_path, objective=Poisoned({6}), trainer=trainer, validate=validate)
    assert result.best_step == 2
    assert result.weights_hash == hashes[1]


def test_skip_leaves_weights_optimizer_and_rate_as_if_the_step_had_not_been(tmp_path):
    class Without(tiny.Sequences):
        def batch(self, step):
            return super().batch(step if step < 6 else step + 1)

    tracker, expected = tiny.Recorder(), tiny.Recorder()
    result = tiny.train(tmp_path / "a", objective=Poisoned({6}), trainer=policy("skip"), tracker=tracker)
    without = tiny.train(
        tmp_path / "b", source=Without(), trainer=tiny.trainer(max_steps=11), tracker=expected
    )
    assert result.weights_hash == without.weights_hash
    assert (result.steps, result.skipped) == (12, 1)
    assert math.isnan(tracker.values["train/loss"][7])
    assert tracker.values["train/skipped_steps"] == {7: 1.0}
    losses = [value for step, value in tracker.values["train/loss"].items() if step != 7]
    assert losses == list(expected.values["train/loss"].values())
    assert tracker.values["train/lr"][8] == expected.values["train/lr"][7]


def test_rollback_goes_to_the_last_checkpoint_and_passes_the_bad_step_over(tmp_path):
    source, skipping = tiny.Sequences(), tiny.Sequences()
    result = tiny.train(tmp_path / "a", source=source, objective=Poisoned({6}), trainer=policy("rollback"))
    expected = tiny.train(tmp_path / "b", source=skipping, objective=Poisoned({6}), trainer=policy("skip"))
    assert source.asked == [0, 1, 2, 3, 4, 5, 6, 4, 5, 7, 8, 9, 10, 11]
    assert result.weights_hash == expected.weights_hash


def test_replayed_steps_are_journaled_under_keys_of_their_own(tmp_path):
    tracker = tiny.InJournal(tmp_path / "journal.jsonl")
    tiny.train(tmp_path, tracker=tracker, objective=Poisoned({6}), trainer=policy("rollback"))
    keys = {}
    for line in (tmp_path / "journal.jsonl").read_text().splitlines():
        record = json.loads(line)
        for key in record.get("m", {}):
            keys.setdefault(key, []).append(record["s"])
    assert keys["train/loss"] == list(range(1, 13))
    assert keys["train/loss@retry1"] == [5, 6, 7]


class Sampled(tiny.Sequences):
    """Tells which step it was last asked for, as a policy's source tells of its samples."""

    def step(self, step):
        self.figures = {"rl/step": float(step + 1)}
        return super().step(step)


def test_a_step_that_is_passed_over_gets_no_figures_of_another(tmp_path):
    tracker = tiny.InJournal(tmp_path / "journal.jsonl")
    tiny.train(
        tmp_path, tracker=tracker, source=Sampled(), objective=Poisoned({6}), trainer=policy("rollback")
    )
    for line in (tmp_path / "journal.jsonl").read_text().splitlines():
        record = json.loads(line)
        for key, value in record.get("m", {}).items():
            if key.startswith("rl/step"):
                assert value == record["s"], key
                assert (key, record["s"]) != ("rl/step@retry1", 7)


def test_rollback_without_a_checkpoint_stops(tmp_path):
    with pytest.raises(BadLoss, match="none yet"):
        tiny.train(tmp_path, objective=Poisoned({1}), trainer=policy("rollback"))


@pytest.mark.parametrize("name", ["skip", "rollback"])
def test_more_bad_steps_than_the_limit_end_the_run(tmp_path, name):
    with pytest.raises(BadLoss) as caught:
        tiny.train(tmp_path, objective=Poisoned({5, 6, 7}), trainer=policy(name, bad_loss_limit=2))
    assert caught.value.step == 8


def test_a_skipping_run_that_is_resumed_equals_the_uninterrupted_one(tmp_path):
    from test_resume import stop_after

    from llmexp.track.progress import Interrupted

    arguments = {"objective": Poisoned({5}), "trainer": policy("skip")}
    expected = tiny.train(tmp_path / "a", **arguments)
    with pytest.raises(Interrupted):
        tiny.train(tmp_path / "b", should_stop=stop_after(9), **arguments)
    assert tiny.train(tmp_path / "b", **arguments).weights_hash == expected.weights_hash


def test_never_resuming_forgets_which_steps_were_bad(tmp_path):
    tiny.train(tmp_path, objective=Poisoned({5}), trainer=policy("skip"))
    again = tiny.train(tmp_path, trainer=policy("skip", resume="never"))
    assert again.skipped == 0
    assert again.weights_hash == tiny.train(tmp_path / "whole").weights_hash


def test_a_loss_far_above_the_running_median_is_bad(tmp_path):
    with pytest.raises(BadLoss, match="more than 5 times the running median"):
        tiny.train(tmp_path, objective=Poisoned({20}, factor=50.0), trainer=tiny.trainer(max_steps=24))


def test_an_objective_that_may_be_negative_has_no_such_limit(tmp_path):
    class MayBeNegative(Poisoned):
        non_negative = False

    tiny.train(tmp_path, objective=MayBeNegative({20}, factor=50.0), trainer=tiny.trainer(max_steps=24))


def test_an_infinite_gradient_of_a_finite_loss_is_bad(tmp_path):
    class Cliff(CrossEntropy):
        def __call__(self, model, batch):
            loss = super().__call__(model, batch)
            edge = torch.sqrt(model.norm.weight.sum() * 0)  # 0, with an infinite slope
            return type(loss)(loss.total + edge)

    with pytest.raises(BadLoss, match="the gradient's norm is nan"):
        tiny.train(tmp_path, objective=Cliff())


@pytest.mark.parametrize(
    "loss,recent,bad",
    [
        (math.nan, [], True),
        (math.inf, [], True),
        (100.0, [1.0] * 15, False),
        (100.0, [1.0] * 16, True),
        (4.9, [1.0] * 16, False),
        (3.0, [0.0] * 16, False),
    ],
)
def test_a_median_is_trusted_once_there_are_enough_losses(loss, recent, bad):
    assert (why_bad(loss, 1.0, recent, 5.0) is not None) is bad


def test_data_in_which_nothing_counts_ends_before_any_step_with_advice(tmp_path):
    source, model = tiny.Sequences(), tiny.model()
    source.empty_steps = set(range(100))
    before = weights_hash(model)
    with pytest.raises(NoCountedTokens, match=r"none of the 576 tokens.*loader.seq_len") as caught:
        tiny.train(tmp_path, source=source, model=model)
    assert caught.value.exit_code == 2
    assert weights_hash(model) == before


def test_a_batch_in_which_nothing_counts_is_passed_over_told_once_and_logged_as_nan(tmp_path, capsys, caplog):
    source, tracker = tiny.Sequences(), tiny.Recorder()
    source.empty_steps = {3}
    result = tiny.train(tmp_path, source=source, tracker=tracker, progress=Progress())
    assert (result.steps, result.skipped) == (12, 1)
    assert "1 of 12 steps taught nothing" in capsys.readouterr().err
    assert [record.getMessage() for record in caplog.records if "teaches nothing" in record.getMessage()] == [
        "step 4 teaches nothing: none of its tokens counts; it is passed over, as will be others like it"
    ]
    assert math.isnan(tracker.values["train/loss"][4])
    assert "no_counted_tokens" in tracker.kinds()


def test_a_bad_step_of_the_run_that_is_gone_on_from_is_no_step_that_taught_nothing(tmp_path, capsys):
    tiny.train(tmp_path / "a", objective=Poisoned({6}), trainer=policy("skip"))
    longer = tiny.trainer(max_steps=14, resume=str(tmp_path / "a"))
    assert tiny.train(tmp_path / "b", trainer=longer, progress=Progress()).skipped == 1
    assert "taught nothing" not in capsys.readouterr().err


def test_a_run_that_learned_nothing_is_not_taken_for_finished_when_started_again(tmp_path):
    for _ in range(2):
        source = tiny.Sequences()
        source.empty_steps = set(range(100))
        with pytest.raises(NoCountedTokens):
            tiny.train(tmp_path, source=source)
