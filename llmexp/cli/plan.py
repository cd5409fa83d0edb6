"""``llmexp plan``: parameters, FLOPs, memory, time and cost of each training stage, before anything runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.cli.compose import compose, parser
from llmexp.cli.terminal import console, print_json, row, size, table
from llmexp.config.mistakes import UserError
from llmexp.data.config import LoaderSpec
from llmexp.launch.config import ProcessesSpec
from llmexp.model.config import ModelSpec
from llmexp.plan.estimate import Plan, plan
from llmexp.stage.config import Grpo, TrainingStage, TrainTokenizer
from llmexp.tokenizer.config import BytesSpec
from llmexp.track.progress import clock, short

if TYPE_CHECKING:
    from llmexp.stage.graph import Composition, Node

EXAMPLES = """  llmexp plan model=llama3_405b hardware=h100_sxm
  llmexp plan experiment=quickstart
  llmexp plan model=small trainer.precision=bf16 hardware=rtx4090 --json
  llmexp plan stage=sft inputs.model=3f9a2c"""

BYTES_VOCABULARY = 256 + 4
"""Every byte, and the special tokens of a trained tokenizer."""


def main(args: list[str]) -> int:
    """Print a plan for each training stage; runs nothing, reads no data."""
    about = (
        "Parameters, FLOPs, memory, time and cost of each training stage. Reads no data, needs no tokenizer."
    )
    made = parser("plan", about, EXAMPLES)
    made.add_argument(
        "--json", action="store_true", help="the plan of the last training stage, and all under `stages`"
    )
    given = made.parse_intermixed_args(args)
    composition, _ = compose(given.overrides, given.config_dir)
    plans = stage_plans(composition)
    if given.json:
        told = {name: one.as_json() for name, one in plans.items()}
        last = list(told)[-1]
        print_json({"stage": last, **told[last], "stages": told})
        return 0
    for name, one in plans.items():
        _print(name, one)
    return 0


def stage_plans(composition: Composition) -> dict[str, Plan]:
    """The plan of each training stage by its name, in the pipeline's order.

    Raises:
        UserError: no stage trains, or a model or its vocabulary is not known before the run.
    """
    training = {
        name: node for name, node in composition.nodes.items() if isinstance(node.spec, TrainingStage)
    }
    if not training:
        raise UserError(
            f"no stage of this composition trains ({', '.join(composition.nodes)}): there is nothing to plan"
        )
    return {name: _plan(node, composition) for name, node in training.items()}


def _plan(node: Node, composition: Composition) -> Plan:
    spec = node.spec
    assert isinstance(spec, TrainingStage)
    launcher = composition.root.launcher
    found = plan(
        _model(node, composition),
        loader=_loader(spec),
        trainer=spec.trainer,
        optimizer=spec.optimizer,
        parallel=spec.parallel,
        hardware=composition.root.hardware,
        world_size=launcher.gpus_per_node if isinstance(launcher, ProcessesSpec) else None,
    )
    if isinstance(spec, Grpo):
        notes = [*found.notes, "time: generating the completions, and the tokens of prompts, are left out"]
        return dataclasses.replace(found, notes=notes)
    return found


def _loader(spec: TrainingStage) -> LoaderSpec:
    """The view of the data; a policy learns from completions of at most so many tokens."""
    loader = getattr(spec, "loader", None)
    if isinstance(loader, LoaderSpec):
        return loader
    assert isinstance(spec, Grpo)
    return LoaderSpec(seq_len=spec.rollout.max_new_tokens)


def _model(node: Node, composition: Composition) -> ModelSpec:
    """The decoder that a stage trains: its own, that of the stage it needs, or of a folder that was given."""
    own = getattr(node.spec, "model", None)
    if isinstance(own, ModelSpec):
        return (
            own
            if own.vocab_size is not None
            else dataclasses.replace(own, vocab_size=_vocabulary(node, composition))
        )
    source = node.needs.get("model")
    if isinstance(source, str) and "model" not in node.spec.inputs:
        return _model(composition.nodes[source], composition)
    return _given_model(node.name, node.spec.inputs["model"], composition)


def _vocabulary(node: Node, composition: Composition) -> int:
    """The size of the tokenizer that a stage needs, as far as it is known before the tokenizer is made."""
    source = node.needs.get("tokenizer")
    spec = composition.nodes[source].spec if isinstance(source, str) and source in composition.nodes else None
    tokenizer = spec.tokenizer if isinstance(spec, TrainTokenizer) else None
    size_wanted = (
        BYTES_VOCABULARY if isinstance(tokenizer, BytesSpec) else getattr(tokenizer, "vocab_size", None)
    )
    if size_wanted is None:
        raise UserError(
            f"the vocabulary of stage '{node.name}' is not known before its tokenizer is there: "
            "set model.vocab_size=N"
        )
    return int(size_wanted)


def _given_model(stage: str, reference: str, composition: Composition) -> ModelSpec:
    from llmexp.cli.places import Places
    from llmexp.cli.subject import Pipeline, subject
    from llmexp.model.folder import read_spec
    from llmexp.store.store import Store

    folder = Path(reference).expanduser()
    if not (folder / "config.json").is_file() and not (folder / "model.json").is_file():
        paths = composition.root.paths
        found = subject(reference, Places(Path(paths.outputs), Store(paths.roots)))
        if isinstance(found, Pipeline):
            models = [
                step.artifact
                for step in found.steps.values()
                if step.artifact and step.artifact.kind == "model"
            ]
            artifact = models[-1] if models else None
        else:
            artifact = found.artifact
        if artifact is None:
            raise UserError(f"{stage}.inputs.model={reference} has no model yet")
        folder = artifact.path
    return read_spec(folder)


def _print(name: str, found: Plan) -> None:
    shown = console()
    shown.print(f"{name}", style="bold", markup=False)
    made = table("", "", "")
    made.show_header = False
    for what, value, about in _rows(found):
        row(made, [f"  {what}", value, about])
    shown.print(made)
    for note in found.notes:
        shown.print(f"  {note}", style="dim", markup=False)
    shown.print()


def _rows(found: Plan) -> list[tuple[str, str, str]]:
    """What, value, remark."""
    active = f"{found.n_active_params:,} active" if found.n_active_params != found.n_params else ""
    limit = found.memory_limit_bytes
    fits = "" if limit is None else f"{'fits' if found.fits else 'DOES NOT FIT'}: {size(limit)} usable"
    rows = [
        ("parameters", f"{found.n_params:,}", active),
        ("FLOPs per token", f"{found.flops_per_token:,}", ""),
        ("devices", str(found.devices), ""),
        ("micro-batch", f"{found.micro_batch} sequences", ""),
        ("memory per device", size(found.memory_bytes["peak"]), fits),
        *((f"  {part}", size(count), "") for part, count in found.memory_bytes["parts"].items()),
        ("steps", "unknown" if found.steps is None else f"{found.steps:,}", ""),
        ("step", _or_unknown(found.step_seconds, lambda s: f"{s:.3g} s"), ""),
        (
            "tokens/s per device",
            _or_unknown(found.tokens_per_second_per_device, short),
            _or_unknown(found.mfu, lambda m: f"MFU {m:.0%}"),
        ),
        ("device-hours", _or_unknown(found.device_hours, lambda h: f"{h:,.4g}"), _wall(found)),
        (
            "cost",
            _or_unknown(found.cost["amount"], lambda amount: f"{amount:,.2f} {found.cost['currency']}"),
            "",
        ),
    ]
    return rows


def _wall(found: Plan) -> str:
    return (
        ""
        if found.device_hours is None
        else f"{clock(found.device_hours * 3600 / found.devices)} of wall time"
    )


def _or_unknown(value: Any, text: Any) -> str:
    return "unknown" if value is None else str(text(value))
