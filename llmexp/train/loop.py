"""The loop: Lightning's, with manual optimisation, for every objective and every source.

One Lightning batch is one optimizer step's whole local share, so Lightning's ``global_step``, the
optimizer's steps and the journal's agree. Micro-batches, counts and policies are ours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch.optim import Optimizer

from llmexp.data.batch import Batch
from llmexp.train.bad_losses import BadStep, why_bad
from llmexp.train.boundary import Boundary
from llmexp.train.checkpoint import read_checkpoint
from llmexp.train.config import OnBadLoss, Precision
from llmexp.train.errors import BadLoss, NoCountedTokens
from llmexp.train.optimizers import set_rate
from llmexp.train.run import Run
from llmexp.train.step import Gradient, Outcome

log = logging.getLogger(__name__)

EMPTY_AT_FIRST = 16
"""Steps in a row from the start in which nothing counts, before that is an error."""


class TrainingLoop(pl.LightningModule):
    """Takes optimizer steps until the run is done."""

    def __init__(self, run: Run, boundary: Boundary) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = run.model
        self._run, self._boundary = run, boundary
        self._gradient = Gradient(
            run.model,
            run.objective,
            run.mesh,
            seed=run.seed,
            bf16=run.trainer.precision is Precision.bf16,
            grad_clip=run.trainer.grad_clip,
        )

    def configure_optimizers(self) -> Optimizer:
        """The run's one optimizer."""
        return self._run.optimizer

    def close(self) -> None:
        """Leave the model as it was given."""
        self._gradient.close()

    def steps(self) -> Iterator[Sequence[Batch]]:
        """This rank's micro-batches of each step; steps known to be bad are passed over.

        Asked for one step at a time and not ahead, so that a source that generates with the
        model sees the weights of that step.
        """
        run = self._run
        while not run.done:
            bad = run.bad_steps.left_out(run.position.step + 1)
            if bad is None:
                with run.computing():
                    micro_batches = run.source.step(run.position.step)
                yield micro_batches
            else:
                self._boundary.after(Outcome(bad.samples, bad.tokens, bad.counted, bad.loss), None)

    def training_step(self, dataloader_iter: Iterator[Any]) -> None:
        """One optimizer step, and what is due after it."""
        micro_batches, _, _ = next(dataloader_iter)
        run = self._run
        outcome = self._gradient(micro_batches, run.position.step, self.manual_backward)
        outcome = replace(outcome, metrics={**outcome.metrics, **run.source.figures})
        if outcome.counted == 0:
            self._pass_over_empty(outcome)
            return
        ratio = run.trainer.bad_loss_ratio if run.objective.non_negative else None
        reason = why_bad(outcome.loss, outcome.grad_norm, run.position.recent, ratio)
        if reason is not None:
            run.optimizer.zero_grad(set_to_none=True)
            self._handle_bad(reason, outcome, micro_batches)
            return
        rate = run.rate()
        set_rate(run.optimizer, rate)
        self.optimizers().step()  # type: ignore[union-attr]
        run.optimizer.zero_grad(set_to_none=True)
        self._boundary.after(outcome, rate)

    def _pass_over_empty(self, outcome: Outcome) -> None:
        """Nothing in the global batch counts: there is no loss and no gradient.

        Raises:
            NoCountedTokens: that has been so since the start.
        """
        run, position = self._run, self._run.position
        step = position.step + 1
        if position.counted == 0 and step >= min(EMPTY_AT_FIRST, run.total or EMPTY_AT_FIRST):
            raise NoCountedTokens(
                f"none of the {position.tokens + outcome.tokens} tokens in the first "
                f"{position.samples + outcome.samples} sequences counts, so there is nothing to learn: "
                f"{run.objective.nothing_counts}"
            )
        run.tracker.event("no_counted_tokens", step=step)
        if not position.empty:
            log.warning(
                "step %d teaches nothing: %s; it is passed over, as will be others like it",
                step,
                run.objective.why_empty,
            )
        position.empty += 1
        self._boundary.after(outcome, None)

    def _handle_bad(self, reason: str, outcome: Outcome, micro_batches: Sequence[Batch]) -> None:
        """Do what ``on_bad_loss`` says.

        Raises:
            BadLoss: it says stop, its limit is reached, or there is nothing to roll back to.
        """
        run, step = self._run, self._run.position.step + 1
        policy = run.trainer.on_bad_loss
        repeated = step in run.bad_steps
        mine = [name for batch in micro_batches for name in batch.documents()]
        documents = [name for names in run.mesh.from_each(mine) for name in names]
        target = run.last_checkpoint
        ends = policy is OnBadLoss.stop or run.bad_steps.forgiven >= run.trainer.bad_loss_limit
        ends = ends or (policy is OnBadLoss.rollback and target is None)
        action = "stop" if ends else policy.value
        bad = BadStep(
            step, reason, outcome.loss, action, documents, outcome.samples, outcome.tokens, outcome.counted
        )
        run.bad_steps.add(bad, write=run.mesh.is_first)
        run.tracker.event("bad_loss", step=step, reason=reason, action=action, documents=documents)
        figures = {"train/loss": outcome.loss, "train/grad_norm": outcome.grad_norm, **run.source.figures}
        if ends:
            run.tracker.metrics(figures, step)
            raise BadLoss(reason, step=step, documents=documents, checkpoint=target, repeated=repeated)
        log.warning("step %d: %s; %s", step, reason, action)
        if policy is OnBadLoss.skip:
            self._boundary.after(outcome, None)
        elif target is not None:
            run.tracker.metrics(figures, step)
            self._roll_back(target)

    def _roll_back(self, target: Path) -> None:
        """Go to the last good checkpoint; on the way back here the bad step is passed over."""
        run = self._run
        seconds = run.position.seconds
        run.restore(read_checkpoint(target))
        run.position.seconds = seconds
        run.tracker.rollback(run.position.step)
