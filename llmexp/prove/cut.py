"""A composition cut down to one training stage, at a size of minutes, with all that the stage needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from llmexp.config.mistakes import UserError, choices
from llmexp.launch.config import LauncherSpec, ProcessesSpec
from llmexp.launch.executors import executor
from llmexp.stage.config import Grpo, TrainingStage
from llmexp.stage.context import External
from llmexp.stage.graph import Composition, Node
from llmexp.stage.job import StageJob
from llmexp.stage.locate import locate
from llmexp.stage.runner import Runner, new_record
from llmexp.store.artifact import Artifact
from llmexp.store.config import PathsSpec
from llmexp.store.store import Store
from llmexp.track.config import NoTrackingSpec
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker
from llmexp.train.config import SchedulerSpec

CHECKPOINTS = 4
"""Checkpoints of a cut run, evenly spread."""
HELD_OUT = 8
"""Sequences, or problems, of a held-out evaluation at most."""


@dataclass(frozen=True)
class Size:
    """How far a training stage is cut down."""

    steps: int = 12
    global_batch: int = 8
    """At most; a smaller one of the composition stays."""


@dataclass(frozen=True)
class Ready:
    """A training stage that can run: its inputs are there."""

    job: StageJob
    """Its ``out`` and ``run_dir`` are to be replaced, once for each time that it runs."""
    spec: TrainingStage
    world: int
    """Processes that train."""
    folder: Path
    """Where everything that a proof writes lies."""

    def again(self, name: str) -> StageJob:
        """The job in folders of its own."""
        base = self.folder / name
        (base / "out").mkdir(parents=True, exist_ok=True)
        return replace(self.job, out=base / "out", run_dir=base / "run", pipeline_dir=base)


def training_stage(composition: Composition, name: str | None) -> Node:
    """The stage to prove something of: the named one, or the last that trains.

    Raises:
        UserError: there is no such stage, or none that trains.
    """
    training = {n.name: n for n in composition.nodes.values() if isinstance(n.spec, TrainingStage)}
    if not training:
        raise UserError(f"no stage of this composition trains ({', '.join(composition.nodes)})")
    if name is None:
        return list(training.values())[-1]
    if name not in training:
        raise UserError(f"--stage {name}: no stage of that name trains; choose from {choices(training)}")
    return training[name]


def cut(spec: TrainingStage, size: Size, world: int) -> TrainingStage:
    """``spec`` with few steps and small batches; model, context, precision and optimizer stay."""
    unit = world * (spec.rollout.group_size if isinstance(spec, Grpo) else 1)
    batch = unit * max(1, min(spec.trainer.global_batch, size.global_batch) // unit)
    micro_batch = spec.trainer.micro_batch
    trainer = replace(
        spec.trainer,
        max_steps=size.steps,
        max_tokens=None,
        max_seconds=None,
        global_batch=batch,
        micro_batch=None if micro_batch is None else min(micro_batch, batch),
        val_every=max(1, size.steps // 3),
        val_sequences=min(spec.trainer.val_sequences or HELD_OUT, HELD_OUT),
        stop_when=None,
        checkpoint_every=max(1, size.steps // CHECKPOINTS),
        log_every=1,
        resume="auto",
    )
    return replace(spec, trainer=trainer, scheduler=_scheduler(spec.scheduler, size.steps))


def _scheduler(spec: SchedulerSpec, steps: int) -> SchedulerSpec:
    """The same schedule with a warm-up that fits."""
    shorter = replace(spec, warmup_steps=min(spec.warmup_steps, steps // 3))
    return replace(spec, warmup_steps=0) if list(shorter.check_steps(steps)) else shorter


def processes(launcher: LauncherSpec) -> int:
    """Processes that a launcher starts for a training stage."""
    return launcher.gpus_per_node if isinstance(launcher, ProcessesSpec) else 1


def prepare(
    composition: Composition,
    name: str,
    size: Size,
    folder: Path,
    progress: Progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> Ready:
    """Make, or find, what stage ``name`` needs; writes below ``folder`` alone.

    What the composition's own stores hold is read there. What they lack is made in ``folder``;
    a training stage among it is cut down as well.

    Raises:
        UserError: a given input does not exist.
        Interrupted: ``should_stop`` said yes.
    """
    paths = composition.root.paths
    given = [str(Path(root).absolute()) for root in paths.store]
    own = PathsSpec(outputs=str(folder), store=[str(folder / "store"), *given])
    root = replace(composition.root, paths=own, tracking=NoTrackingSpec())
    store = Store(own.roots)
    nodes = {n: replace(composition.nodes[n]) for n in _ancestors(composition, name)}
    small = replace(composition, root=root, nodes=nodes)
    runs, world = paths.runs, processes(root.launcher)
    locate(small, store, runs)
    for node in nodes.values():
        missing = store.find(node.spec.makes, node.fingerprint) is None
        if isinstance(node.spec, TrainingStage) and (missing or node.name == name):
            node.spec = cut(node.spec, size, world)
    locate(small, store, runs)
    target = nodes.pop(name)
    made = _make(small, store, folder, progress, should_stop) if nodes else {}
    assert isinstance(target.spec, TrainingStage)
    return Ready(_job(target, made, small, folder), target.spec, world, folder)


def _ancestors(composition: Composition, name: str) -> list[str]:
    """The stages that ``name`` needs, directly or not, and itself, in the pipeline's order."""
    wanted = {name}
    for node in reversed(list(composition.nodes.values())):
        if node.name in wanted:
            for need, source in node.needs.items():
                if need not in node.spec.inputs:
                    wanted |= set(source if isinstance(source, list) else [source])
    return [one for one in composition.nodes if one in wanted]


def _make(
    composition: Composition,
    store: Store,
    folder: Path,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> dict[str, Artifact]:
    run_dir = folder / "runs" / "inputs" / "needed"
    run_dir.mkdir(parents=True)
    return Runner(
        composition=composition,
        store=store,
        run_dir=run_dir,
        record=new_record(composition, "llmexp prove", run_dir),
        tracker=Tracker(),
        progress=progress,
        execute=executor(composition.root.launcher),
        should_stop=should_stop,
    ).run()


def _job(node: Node, made: dict[str, Artifact], composition: Composition, folder: Path) -> StageJob:
    return StageJob(
        name=node.name,
        kind=node.kind,
        spec=node.spec,
        root=dataclasses.replace(composition.root),
        inputs=node.inputs(made),
        output=External(node.spec.makes, node.fingerprint, folder / "out"),
        out=folder / "out",
        run_dir=folder / "run",
        pipeline_dir=folder,
        secrets=composition.secrets,
        secret_paths=node.secret_paths,
    )
