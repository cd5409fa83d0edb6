"""The Trainer that drives the loop, with everything off that the loop does itself."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytorch_lightning as pl
from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy, Strategy

from llmexp.parallel.mesh import Mesh

ACCELERATORS = {"cpu": "cpu", "cuda": "gpu", "mps": "mps"}


class MeshStrategy(DDPStrategy):
    """Several ranks, started by someone else, whose gradients the loop sums itself."""

    def configure_ddp(self) -> None:
        """No wrapper: see ``llmexp.parallel.gradients`` for why."""


def make_trainer(mesh: Mesh, run_dir: Path) -> pl.Trainer:
    """A Trainer that only loops.

    It gets a folder of its own below ``run_dir``: in its root folder it looks for SLURM
    checkpoints of its own, and loads them unasked. Its environment is given, or it would find
    SLURM by itself, start ranks and requeue the job.
    """
    strategy: Strategy
    environment: LightningEnvironment | TorchElasticEnvironment
    if mesh.size == 1:
        strategy, environment = SingleDeviceStrategy(device=mesh.device), LightningEnvironment()
        devices: int | list[int] = [mesh.device.index or 0] if mesh.device.type == "cuda" else 1
    else:
        backend = "nccl" if mesh.device.type == "cuda" else "gloo"
        strategy, environment = MeshStrategy(process_group_backend=backend), TorchElasticEnvironment()
        devices = mesh.local_size
    return pl.Trainer(
        accelerator=ACCELERATORS[mesh.device.type],
        devices=devices,
        num_nodes=mesh.size // mesh.local_size,
        strategy=strategy,
        plugins=[environment],
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,
        default_root_dir=run_dir / "lightning",
    )


class Stream:
    """What Lightning iterates over: ``make`` is called once, and asked for one step at a time."""

    def __init__(self, make: Callable[[], Iterator]) -> None:
        self._make = make

    def __iter__(self) -> Iterator:
        return self._make()


def drive(trainer: pl.Trainer, loop: pl.LightningModule, steps: Callable[[], Iterator]) -> None:
    """Run ``loop`` over ``steps()``. Signals stay with whoever handles them; errors pass through."""
    # Its SIGTERM handler speaks to other ranks from inside the handler, which hangs when not all get one.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    trainer._signal_connector.received_sigterm = False
    # The loop agrees on stopping once a step; this would do so once more.
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(loop, train_dataloaders=Stream(steps))
    except SystemExit as stop:
        # It answers Ctrl-C by ignoring the next one and leaving with code 1.
        if isinstance(stop.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, handler)
            raise stop.__context__ from None
        raise


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning says nothing below a warning, and not what it would like a loader or a logger to be."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*|lightning_fabric\..*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
