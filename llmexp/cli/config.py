"""``llmexp config``: what can be set, and what a composition sets it to and why."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from llmexp.cli import catalogue
from llmexp.cli.compose import Session, parser, session
from llmexp.cli.terminal import console, print_json, row, table
from llmexp.config.lines import Line, parse_lines
from llmexp.config.mistakes import CompositionError, UserError, nearest
from llmexp.config.spec import MISSING, Mistake
from llmexp.config.typed import field_types, spec_class
from llmexp.config.validate import secret_paths, secret_values
from llmexp.stage.config import RootSpec
from llmexp.track.masking import HIDDEN, Mask, mask_of

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """  llmexp config
  llmexp config model
  llmexp config model=llama3_8b
  llmexp config optimizer=muon optimizer.lr=0.01
  llmexp config experiment=quickstart
  llmexp config experiment=quickstart sft.optimizer --json"""

WHOLE = ("stage", "pipeline", "experiment")
"""Groups whose options stand for a whole composition."""


@dataclass(frozen=True)
class Asked:
    """One composed node that is shown."""

    path: str
    """As a person writes it: ``sft.optimizer``."""
    absolute: str
    """In the composed tree."""
    node: DictConfig


def main(args: list[str]) -> int:
    """List what there is, or print composed nodes."""
    made = parser(
        "config",
        "Groups, options, experiments; or composed nodes with type, unit, default and origin of each value.",
        EXAMPLES,
    )
    made.add_argument("--json", action="store_true", help="as JSON, with stable keys")
    given = made.parse_intermixed_args(args)
    opened = session(given.config_dir, complete=False)
    known = catalogue.groups(opened.loader)
    if not given.overrides:
        return _list(opened, known, given.json)
    if all(word in known for word in given.overrides):
        return _list(opened, given.overrides, given.json)
    return _composed(opened, known, given.overrides, given.json)


def _list(opened: Session, groups: list[str], as_json: bool) -> int:
    found = {group: catalogue.options(opened.loader, group) for group in groups}
    if as_json:
        print_json(
            {"groups": {group: [asdict(option) for option in options] for group, options in found.items()}}
        )
        return 0
    shown = console()
    for group, options in found.items():
        made = table(group, "")
        for option in options:
            row(made, [f"  {option.name}", option.header])
        shown.print(made)
        shown.print()
    shown.print(
        "in full: llmexp config GROUP=OPTION · of a stage: llmexp config experiment=NAME STAGE.GROUP",
        style="dim",
        markup=False,
    )
    return 0


def _composed(opened: Session, known: list[str], words: list[str], as_json: bool) -> int:
    mistakes: list[Mistake] = []
    paths = [word for word in words if "=" not in word and not word.startswith("~")]
    lines = parse_lines([word for word in words if word not in paths], None, mistakes)
    if mistakes:
        raise CompositionError(mistakes)
    cfg = opened.compose([*_stage_of(opened, lines, paths), *(line.text for line in lines)])
    mask, secrets = mask_of(secret_values(cfg)), secret_paths(cfg)
    asked = list(_asked(cfg, lines, paths, known))
    if not asked:
        return _overview(opened, cfg, lines, as_json)
    nodes = [_node(one, opened.loader.sources, mask, secrets) for one in asked]
    if as_json:
        print_json({"nodes": nodes})
        return 0
    for node in nodes:
        _print_node(node)
    return 0


def _stage_of(opened: Session, lines: list[Line], paths: list[str]) -> list[str]:
    """``stage=…`` where neither a stage nor a pipeline is said: one that has what is asked for."""
    if any(line.key in WHOLE for line in lines):
        return []
    firsts = [path.split(".")[0] for path in paths] + [line.key.split(".")[0] for line in lines]
    stages = catalogue.options(opened.loader, "stage")
    kinds = {option.name: set(field_types(spec_class(option.spec))) for option in stages}  # type: ignore
    having = {name: len(kinds[name] & set(firsts)) for name in kinds}
    named = [name for name in firsts if name in having]
    if named:
        return [f"stage={named[0]}"]
    default = RootSpec.stage
    most = max(having.values(), default=0)
    if having.get(default, 0) or not most:
        return []
    return [f"stage={next(name for name, count in having.items() if count == most)}"]


def _asked(cfg: DictConfig, lines: list[Line], paths: list[str], known: list[str]) -> Iterator[Asked]:
    """The nodes that are named by path, else those whose option or values the overrides choose."""
    wanted = paths or list(dict.fromkeys(_node_path(line, known) for line in lines if line.key not in WHOLE))
    for path in wanted:
        found = list(_nodes(cfg, path))
        while not found and not paths and "." in path:  # a value within a list or mapping: its node
            path = path.rpartition(".")[0]
            found = list(_nodes(cfg, path))
        if not found:
            places = [
                *map(str, cfg.stages),
                *(f"{name}.{key}" for name in cfg.stages for key in cfg.stages[name]),
                *map(str, cfg),
            ]
            hint = nearest(path, places) or f"Stages: {', '.join(map(str, cfg.stages))}"
            raise UserError(f"there is no '{path}' in this composition. {hint}")
        yield from found


def _node_path(line: Line, known: list[str]) -> str:
    """``sft.optimizer`` for ``sft.optimizer=muon`` and for ``sft.optimizer.lr=1``."""
    parts = line.key.replace("/", ".").split(".")
    return line.key if parts[-1] in known else ".".join(parts[:-1]) or line.key


def _nodes(cfg: DictConfig, path: str) -> Iterator[Asked]:
    """Typed nodes at a path: of the root, of a stage by its name, or of every stage that has it."""
    candidates = [
        (path, path),
        (path, f"stages.{path}"),
        *((f"{name}.{path}", f"stages.{name}.{path}") for name in cfg.stages),
    ]
    for shown, absolute in candidates:
        node = (
            OmegaConf.select(cfg, absolute, throw_on_missing=False)
            if not path.startswith(("hydra", "stages"))
            else None
        )
        if isinstance(node, DictConfig) and catalogue.is_spec(node):
            yield Asked(shown, absolute, node)


def _node(asked: Asked, sources: dict[str, str], mask: Mask, secrets: frozenset[str]) -> dict[str, Any]:
    """A node as stable JSON."""
    target = str(asked.node._target_)
    fields = []
    for one in catalogue.node_settings(asked.node, asked.absolute, sources):
        secret = f"{asked.absolute}.{one.key}" in secrets
        value, source = HIDDEN if secret else mask(one.value), mask(one.source)
        fields.append(
            {
                "key": one.key,
                "value": value,
                "source": source,
                **{k: v for k, v in asdict(one.field).items() if k != "name"},
            }
        )
    chosen = mask(sources.get(asked.absolute, ""))
    return {
        "path": asked.path,
        "spec": target,
        "about": catalogue.documented(target),
        "chosen_by": chosen,
        "fields": fields,
    }


def _print_node(node: dict[str, Any]) -> None:
    shown = console()
    shown.print(node["path"], style="bold", markup=False, end="")
    chosen = f"  ({node['chosen_by']})" if node["chosen_by"] else ""
    shown.print(f"  {node['spec'].rpartition('.')[2]}: {node['about']}{chosen}", markup=False)
    for field in node["fields"]:
        _print_field(shown, field)
    shown.print()


def _print_field(shown: Console, field: dict[str, Any]) -> None:
    """``d_model: 768  int > 0 · conf/model/tiny.yaml``, and below it what it is: that fits any terminal."""
    from rich.padding import Padding
    from rich.text import Text

    value = "??? (give it)" if field["value"] == MISSING else field["value"]
    kind = " ".join(part for part in (field["type"], field["limits"], field["unit"]) if part)
    own = field["source"] != "default"
    default = f"default {field['default']}" if own and field["default"] != "required" else ""
    notes = " · ".join(part for part in (kind, _short(field["source"]) if own else "", default) if part)
    shown.print(
        Text.assemble(
            (f"  {field['key']}: ", "bold" if own else ""), (value, "bold cyan" if own else "cyan"),
            "  ", (notes, "dim"),
        )
    )  # fmt: skip
    shown.print(Padding(Text(field["description"]), (0, 0, 0, 6), expand=False))


def _short(source: str) -> str:
    """A file of this checkout or package from ``conf`` on; any other source as it is."""
    here = f"{os.path.sep}conf{os.path.sep}"
    return f"conf/{source.rpartition(here)[2]}" if here in source else source


def _overview(opened: Session, cfg: DictConfig, lines: list[Line], as_json: bool) -> int:
    """A whole composition: its stages, what each needs, and what each has to set."""
    chosen = [
        catalogue.option(opened.loader, line.key, str(line.override.value()))
        for line in lines
        if line.key in WHOLE
    ]
    stages: list[dict[str, Any]] = [
        {
            "name": str(name),
            "stage": str(entry.stage),
            "needs": OmegaConf.to_container(entry.needs),
            "overrides": [str(x) for x in entry.overrides],
            "nodes": {
                str(k): str(v._target_)
                for k, v in cfg.stages[name].items()
                if isinstance(v, DictConfig) and catalogue.is_spec(v)
            },
        }
        for name, entry in cfg.pipeline.stages.items()
    ]
    if as_json:
        print_json({"options": [asdict(option) for option in chosen], "stages": stages})
        return 0
    shown = console()
    for option in chosen:
        shown.print(f"{option.group}={option.name}  ({option.file})", style="bold", markup=False)
        shown.print(textwrap.indent(option.header, "  ") + "\n", markup=False)
    made = table("stage", "type", "needs", "overrides", "what it has")
    for stage in stages:
        needs = ", ".join(
            f"{need} ← {', '.join(one) if isinstance(one, list) else one}"
            for need, one in stage["needs"].items()
        )
        has = ", ".join(f"{key} ({target.rpartition('.')[2]})" for key, target in stage["nodes"].items())
        row(made, [stage["name"], stage["stage"], needs, " ".join(stage["overrides"]), has])
    shown.print(made)
    return 0
