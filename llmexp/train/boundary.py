"""What happens between two optimizer steps: journal, held-out figures, checkpoint, stop."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

import torch

from llmexp.model.decoder import Decoder
from llmexp.track.progress import Interrupted, Task
from llmexp.train.bad_losses import WINDOW
from llmexp.train.config import StopWhen
from llmexp.train.run import Run, Validate
from llmexp.train.step import Outcome

log = logging.getLogger(__name__)


class Boundary:
    """Called after each step, with the weights and the optimizer as the step left them."""

    def __init__(self, run: Run, task: Task) -> None:
        self._run, self._task = run, task
        self._last = time.perf_counter()
        self._window_tokens, self._window_seconds = 0, 0.0
        self._compared = ""  # the held-out figure that says which weights are best, once there is one

    def after(self, outcome: Outcome, rate: float | None) -> None:
        """Count the step, log it, and do what is due.

        ``rate`` is the part of the peak learning rate that the step used, None when the
        optimizer was not stepped.

        Raises:
            Interrupted: someone asked to stop; a checkpoint has been written.
        """
        run, position = self._run, self._run.position
        position.step += 1
        position.samples += outcome.samples
        position.tokens += outcome.tokens
        position.counted += outcome.counted
        if rate is None:
            position.skipped.append(position.step)
        else:
            position.last_loss = outcome.loss
            position.recent = [*position.recent[1 - WINDOW :], outcome.loss]
        stop = self._agree()
        self._log(outcome, rate)
        trainer = run.trainer
        if run.validate is not None and (run.done or _due(position.step, trainer.val_every)):
            self._validate(run.validate)
        due = run.done or stop or _due(position.step, trainer.checkpoint_every)
        saved = run.save() if due else None
        self._last = self._count_pause()
        if stop and not run.done:
            where = f"saved as {saved}" if saved else "not saved"
            raise Interrupted(f"stopped after step {position.step}, {where}")

    def conclude(self) -> None:
        """Show what the whole training came to in place of its last step's figures."""
        run, position = self._run, self._run.position
        figures: dict[str, Any] = self._rates(position.tokens, position.seconds)
        if run.trainer.stop_when is not None and position.best_step is not None:
            stopped = ", stopped early" if position.stopped else ""
            figures["best"] = f"step {position.best_step}, which is kept{stopped}"
            if self._compared and position.best_val is not None:
                best = position.best_val if self._compared == "val/loss" else -position.best_val
                figures[self._compared.replace("/", " ")] = best
        self._show(figures)

    def _agree(self) -> bool:
        """Count the step's seconds; whether any rank was asked to stop. The same on every rank."""
        now = time.perf_counter()
        seconds = now - self._last
        self._last = now
        asked, seconds = self._run.mesh.max([float(self._run.should_stop()), seconds])
        self._run.position.seconds += seconds
        self._window_seconds += seconds
        return asked > 0

    def _count_pause(self) -> float:
        """Count what held-out figures and checkpoints took as training time; the present time."""
        now = time.perf_counter()
        self._run.position.seconds += self._run.mesh.max([now - self._last])[0]
        return now

    def _log(self, outcome: Outcome, rate: float | None) -> None:
        run, step = self._run, self._run.position.step
        values = {"train/loss": outcome.loss, "train/grad_norm": outcome.grad_norm, **outcome.metrics}
        values = {name if "/" in name else f"train/{name}": value for name, value in values.items()}
        if rate is not None:
            values["train/lr"] = run.optimizer.param_groups[0]["lr"]
        else:
            values["train/skipped_steps"] = float(len(run.position.skipped))
        self._window_tokens += outcome.tokens
        # A policy's loss is near zero whatever it has learned: its reward says how far it is.
        shown = {"reward": values["rl/reward"]} if "rl/reward" in values else {"loss": outcome.loss}
        if step % run.trainer.log_every == 0 or run.done:
            speed = self._speed()
            values |= {f"perf/{name}": value for name, value in speed.items()}
            shown |= speed
        run.tracker.metrics(values, step)
        self._show(shown)

    def _show(self, figures: dict[str, Any]) -> None:
        position = self._run.position
        done = position.step if self._run.total is not None else round(position.seconds)
        self._task.update(done, **figures)

    def _speed(self) -> dict[str, float]:
        """Tokens a second since it was last asked, and model FLOPs utilisation where the peak is known."""
        speed = self._rates(self._window_tokens, self._window_seconds)
        self._window_tokens, self._window_seconds = 0, 0.0
        return speed

    def _rates(self, tokens: int, seconds: float) -> dict[str, float]:
        rates = {"tokens_per_second": tokens / max(seconds, 1e-9)}
        if self._run.compute is not None:
            compute = self._run.compute
            rates["mfu"] = rates["tokens_per_second"] * compute.flops_per_token / compute.peak_flops
        return rates

    def _validate(self, validate: Validate) -> None:
        run, position = self._run, self._run.position
        with run.computing():
            own = _held_out(run.model, validate)
        figures: dict[str, float] = run.mesh.from_first(own)
        run.tracker.metrics(figures, position.step)
        self._compared = "val/loss" if "val/loss" in figures else "val/reward"
        figure = figures[self._compared]
        loss = figure if self._compared == "val/loss" else -figure
        self._show({self._compared.replace("/", " "): figure})
        if not math.isfinite(loss):
            log.warning("step %d: the held-out loss is %s", position.step, loss)
        if math.isfinite(loss) and (position.best_val is None or loss < position.best_val):
            if run.trainer.stop_when is not None and not run.save_best(figures):
                return
            position.best_val, position.best_step, position.stale = loss, position.step, 0
        else:
            position.stale += 1
        if run.trainer.stop_when is StopWhen.val_loss_rises and position.stale >= run.trainer.patience:
            position.stopped = True
            run.tracker.event("stopped_early", step=position.step, best_step=position.best_step)


def _held_out(model: Decoder, validate: Validate) -> dict[str, float]:
    """The figures of ``model`` in evaluation mode; the mode it had is set again."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return validate(model)
    finally:
        model.train(was_training)


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
