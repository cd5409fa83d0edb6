"""Optimizers, schedules and the training loop, as configured. No torch here."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from llmexp.config.spec import Mistake, Spec, setting
from llmexp.parallel.config import ParallelSpec


@dataclass(kw_only=True)
class OptimizerSpec(Spec):
    """Base of the optimizers. Each is built with ``parameters``: dict of name -> nn.Parameter."""


@dataclass(kw_only=True)
class AdamWSpec(OptimizerSpec):
    """AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101); vectors such as norms are not decayed."""

    builds: ClassVar[str] = "llmexp.train.optimizers:adamw"

    lr: float = setting("Peak learning rate.", default=3e-4, gt=0)
    betas: list[float] = setting(
        "Decay of the running means of the gradient and of its square.", default=[0.9, 0.95], ge=0, lt=1
    )
    eps: float = setting("Added to the root of the squared gradient's mean.", default=1e-8, gt=0)
    weight_decay: float = setting("Decay of matrices a step, times the learning rate.", default=0.1, ge=0)

    def check(self) -> Iterator[Mistake]:
        """Two betas."""
        yield from _two_betas(self.betas)


@dataclass(kw_only=True)
class MuonSpec(OptimizerSpec):
    """Muon (Jordan et al. 2024) for the matrices of the blocks, AdamW for everything else."""

    builds: ClassVar[str] = "llmexp.train.optimizers:muon"

    lr: float = setting("Peak learning rate of Muon's matrices.", default=0.02, gt=0)
    momentum: float = setting("Decay of Muon's running mean of the gradient.", default=0.95, ge=0, lt=1)
    nesterov: bool = setting("Look one step ahead along the momentum.", default=True)
    ns_steps: int = setting(
        "Newton-Schulz iterations that make the update orthogonal.", default=5, ge=1, unit="iterations"
    )
    weight_decay: float = setting(
        "Decay of matrices a step, times the learning rate of each.", default=0.0, ge=0
    )
    adamw_lr: float = setting("Peak learning rate of embeddings, norms and head.", default=3e-3, gt=0)
    betas: list[float] = setting(
        "AdamW's betas, for embeddings, norms and head.", default=[0.9, 0.95], ge=0, lt=1
    )
    eps: float = setting("AdamW's epsilon, for embeddings, norms and head.", default=1e-8, gt=0)

    def check(self) -> Iterator[Mistake]:
        """Two betas."""
        yield from _two_betas(self.betas)


def _two_betas(betas: list[float]) -> Iterator[Mistake]:
    if len(betas) != 2:
        yield Mistake("betas", f"holds {len(betas)} numbers", "give two, such as [0.9, 0.95]")


@dataclass(kw_only=True)
class SchedulerSpec(Spec):
    """Base of the learning-rate schedules: each is a pure function of the step and of all steps."""

    warmup_steps: int = setting("Steps over which the rate rises to its peak.", default=0, ge=0, unit="steps")

    def check_steps(self, total: int) -> Iterator[Mistake]:
        """The phases must fit into ``total`` steps."""
        if self.warmup_steps >= total:
            yield Mistake(
                "warmup_steps",
                f"is {self.warmup_steps}, but training has {total} steps: the peak is never reached",
                f"set at most {max(0, total - 1)}",
            )


@dataclass(kw_only=True)
class CosineSpec(SchedulerSpec):
    """Half a cosine from the peak down to ``min_ratio`` of it (arXiv 1608.03983, without restarts)."""

    builds: ClassVar[str] = "llmexp.train.schedules:Cosine"

    min_ratio: float = setting("The last rate as a part of the peak.", default=0.1, ge=0, le=1)


@dataclass(kw_only=True)
class LinearSpec(SchedulerSpec):
    """A straight line from the peak down to ``min_ratio`` of it."""

    builds: ClassVar[str] = "llmexp.train.schedules:Linear"

    min_ratio: float = setting("The last rate as a part of the peak.", default=0.0, ge=0, le=1)


@dataclass(kw_only=True)
class ConstantSpec(SchedulerSpec):
    """The peak, after the warm-up, until the end."""

    builds: ClassVar[str] = "llmexp.train.schedules:Constant"


@dataclass(kw_only=True)
class WSDSpec(SchedulerSpec):
    """Warm-up, stable, decay (Hu et al. 2024, arXiv 2404.06395): the peak until the last steps."""

    builds: ClassVar[str] = "llmexp.train.schedules:WarmupStableDecay"

    decay_fraction: float = setting(
        "Part of all steps in which the rate falls, in a line.", default=0.2, gt=0, le=1
    )
    min_ratio: float = setting("The last rate as a part of the peak.", default=0.0, ge=0, le=1)

    def check_steps(self, total: int) -> Iterator[Mistake]:
        """Warm-up and decay must fit into ``total`` steps."""
        decay = math.ceil(self.decay_fraction * total)
        if self.warmup_steps + decay > total:
            yield Mistake(
                "warmup_steps",
                f"warm-up of {self.warmup_steps} and decay of {decay} steps overlap in {total} steps",
                "lower warmup_steps or decay_fraction",
            )


class Device(Enum):
    """Where a run computes."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Precision(Enum):
    """The dtype of the forward pass's matrix products; weights and optimizer state are float32."""

    fp32 = "fp32"
    bf16 = "bf16"


class Recompute(Enum):
    """What the backward pass computes again instead of keeping it."""

    none = "none"
    block = "block"


class OnBadLoss(Enum):
    """What a loss that is not finite, or far above the usual, does. It never steps the optimizer."""

    stop = "stop"
    skip = "skip"
    rollback = "rollback"


class StopWhen(Enum):
    """Reasons to end before the budget is used up."""

    val_loss_rises = "val_loss_rises"


@dataclass(kw_only=True)
class TrainerSpec(Spec):
    """The training loop. Exactly one of ``max_steps``, ``max_tokens`` and ``max_seconds`` ends it."""

    device: Device = setting(
        "Where to compute; auto: a GPU if there is one.", default=Device.auto, result=False
    )
    max_steps: int | None = setting("Optimizer steps to take.", default=None, ge=1, unit="steps")
    max_tokens: int | None = setting(
        "Tokens to see, rounded up to whole steps; every sequence counts as a full one.",
        default=None,
        ge=1,
        unit="tokens",
    )
    max_seconds: float | None = setting(
        "Seconds to train, added up over restarts; the number of steps then depends on the machine.",
        default=None,
        gt=0,
        unit="s",
    )
    global_batch: int = setting(
        "Sequences that one optimizer step sees over all ranks.", default=32, ge=1, unit="sequences"
    )
    micro_batch: int | None = setting(
        "Sequences in one forward pass on one rank; null: as many as fit.",
        default=None,
        ge=1,
        unit="sequences",
        result=False,
    )
    precision: Precision = setting("The dtype of matrix products.", default=Precision.fp32)
    compile: bool = setting("Compile each block with torch.compile.", default=False, result=False)
    activation_checkpointing: Recompute = setting(
        "What the backward pass computes again to save memory.", default=Recompute.none, result=False
    )
    grad_clip: float | None = setting(
        "Largest norm of the whole gradient; larger ones are scaled down to it.", default=1.0, gt=0
    )
    val_every: int | None = setting(
        "Steps between held-out evaluations; null: only at the end.", default=None, ge=1, unit="steps"
    )
    val_sequences: int | None = setting(
        "Held-out sequences (or problems) of one evaluation; null: all.", default=256, ge=1, unit="sequences"
    )
    stop_when: StopWhen | None = setting("Reason to end early; the best weights are kept.", default=None)
    patience: int = setting(
        "Held-out evaluations in a row without a new best loss before stop_when ends the run.",
        default=3,
        ge=1,
        unit="evaluations",
    )
    checkpoint_every: int | None = setting(
        "Steps between checkpoints; null: only at the end and when interrupted.",
        default=500,
        ge=1,
        unit="steps",
        result=False,
    )
    keep_checkpoints: int = setting(
        "Newest checkpoints that are kept.", default=2, ge=1, unit="checkpoints", result=False
    )
    resume: str = setting(
        "auto: from this run's newest valid checkpoint; never; or the path of a checkpoint or of a run, "
        "which counts by its content.",
        default="auto",
        result=False,
    )
    on_bad_loss: OnBadLoss = setting("What a bad loss does.", default=OnBadLoss.stop)
    bad_loss_ratio: float | None = setting(
        "A loss this many times the running median (at least 1 nat) is bad; "
        "null: only one that is not finite.",
        default=5.0,
        gt=1,
    )
    bad_loss_limit: int = setting(
        "Bad steps that skip and rollback forgive in a run.", default=10, ge=1, unit="steps"
    )
    log_every: int = setting(
        "Steps between figures of speed; all other metrics are journaled every step.",
        default=10,
        ge=1,
        unit="steps",
        result=False,
    )

    def check(self) -> Iterator[Mistake]:
        """One budget, a batch that holds the micro-batch, figures to stop by, a compiler, a checkpoint."""
        given = [n for n in ("max_steps", "max_tokens", "max_seconds") if getattr(self, n) is not None]
        if len(given) != 1:
            said = (
                "none of max_steps, max_tokens and max_seconds is set"
                if not given
                else f"{', '.join(given)} are set"
            )
            yield Mistake(
                given[1] if given else "max_steps", said, "set exactly one and leave the others null"
            )
        if self.micro_batch is not None and self.micro_batch > self.global_batch:
            yield Mistake(
                "micro_batch",
                f"{self.micro_batch} is more than global_batch={self.global_batch}",
                f"set at most {self.global_batch}, or null",
            )
        if self.stop_when is not None and self.val_every is None:
            yield Mistake(
                "val_every",
                f"is null: held-out figures come only at the end, and stop_when={self.stop_when.value} never "
                "ends the run",
                "set val_every to some steps, or stop_when=null",
            )
        yield from self._check_compiler()
        yield from self._check_resume()

    def _check_compiler(self) -> Iterator[Mistake]:
        # On a GPU the kernels are Triton's, but its launchers are built with a C compiler too.
        if self.compile and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
            yield Mistake(
                "compile",
                "torch.compile needs a C++ compiler and there is none on this machine",
                "install one (Debian and Ubuntu: apt-get install g++), or set compile=false",
            )

    def _check_resume(self) -> Iterator[Mistake]:
        if self.resume not in ("auto", "never") and not Path(self.resume).exists():
            yield Mistake(
                "resume",
                f"there is no {self.resume}",
                "give the path of a checkpoint or of a run folder, or auto, or never",
            )

    def steps(self, seq_len: int) -> int | None:
        """Optimizer steps of the whole run at ``seq_len`` tokens a sequence; None when seconds end it."""
        if self.max_steps is not None:
            return self.max_steps
        if self.max_tokens is not None:
            return math.ceil(self.max_tokens / (self.global_batch * seq_len))
        return None


def check_batch(trainer: TrainerSpec, parallel: ParallelSpec) -> Iterator[Mistake]:
    """Each rank must get the same number of sequences, and at least one micro-batch of them."""
    ranks = parallel.size()
    if trainer.global_batch % ranks:
        lower = trainer.global_batch // ranks * ranks
        yield Mistake(
            "trainer.global_batch",
            f"{trainer.global_batch} sequences cannot be shared evenly by {ranks} ranks",
            f"set {lower} or {lower + ranks}" if lower else f"set {ranks}",
        )


def check_budget(trainer: TrainerSpec, scheduler: SchedulerSpec, seq_len: int) -> Iterator[Mistake]:
    """The schedule's phases must fit into the steps of the budget."""
    total = trainer.steps(seq_len)
    if total is not None:
        yield from (mistake.under("scheduler") for mistake in scheduler.check_steps(total))
