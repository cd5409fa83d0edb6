"""A composition as specs: the stages in order, what each needs, and the fingerprint of each artifact to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from llmexp.config.mistakes import CompositionError, UserError
from llmexp.config.spec import Mistake, as_data
from llmexp.config.validate import Materialise, secret_values
from llmexp.stage.config import RootSpec, StageSpec
from llmexp.stage.context import External, Input
from llmexp.store.errors import NoArtifact
from llmexp.store.fingerprint import fingerprint, user_sources
from llmexp.store.store import Store


@dataclass(kw_only=True)
class Node:
    """One stage of the pipeline that is to run."""

    name: str
    kind: str
    """Stage type."""
    spec: StageSpec
    needs: dict[str, str | list[str]]
    """Need to the stage, or stages, that make it."""
    given: dict[str, dict[str, Input]] = field(default_factory=dict)
    """Need to what a person gave instead, by name."""
    fingerprint: str = ""


@dataclass(kw_only=True)
class Composition:
    """Everything that a command decided, as plain typed data."""

    root: RootSpec
    nodes: dict[str, Node]
    """Stages by name, each after what it needs."""
    overrides: list[str]
    title: str
    secrets: frozenset[str] = frozenset()

    @property
    def target(self) -> Node:
        """The last stage."""
        return list(self.nodes.values())[-1]


def mistakes_of(cfg: DictConfig, sources: dict[str, str]) -> list[Mistake]:
    """Everything that is wrong with a composed tree: missing values, ranges, references, combinations."""
    return _materialise(cfg, sources)[1]


def composition_of(cfg: DictConfig, sources: dict[str, str] | None = None) -> Composition:
    """Specs from a composed tree.

    Raises:
        CompositionError: with all that is wrong.
    """
    composition, mistakes = _materialise(cfg, sources or {})
    if composition is None or mistakes:
        raise CompositionError(mistakes)
    return composition


def _materialise(cfg: DictConfig, sources: dict[str, str]) -> tuple[Composition | None, list[Mistake]]:
    make = Materialise(sources)
    root = make.spec(_without_stages(cfg))
    specs = {str(name): make.spec(node, f"stages.{name}") for name, node in cfg.stages.items()}
    nodes = {}
    for name, entry in cfg.pipeline.stages.items():
        spec = specs.get(str(name))
        if spec is not None:
            needs = cast(dict[str, Any], OmegaConf.to_container(entry.needs))
            nodes[str(name)] = Node(name=str(name), kind=str(entry.stage), spec=cast(StageSpec, spec), needs=needs)
    for node in nodes.values():
        make.mistakes += [m.under(f"stages.{node.name}") for m in _check_node(node, nodes, set(specs))]
    if root is None or make.mistakes:
        return None, [_shown(m) for m in make.mistakes]
    choices = cfg.hydra.runtime.choices
    title = str(choices.get("experiment") or choices.get("pipeline") or cfg.stage)
    return Composition(
        root=cast(RootSpec, root), nodes=nodes, overrides=[str(o) for o in cfg.hydra.overrides.task], title=title,
        secrets=secret_values(cfg),
    ), []


def _without_stages(cfg: DictConfig) -> DictConfig:
    root = cfg.copy()
    OmegaConf.set_struct(root, False)
    root.pop("hydra")
    root.stages = {}
    return root


def _shown(mistake: Mistake) -> Mistake:
    """Paths as a person writes them: ``sft.optimizer.lr``."""
    return Mistake(mistake.path.removeprefix("stages."), mistake.problem, mistake.remedy, mistake.source)


def _check_node(node: Node, nodes: dict[str, Node], names: set[str]) -> Iterator[Mistake]:
    specs: dict[str, Any] = {}
    for need, declared in node.spec.needs.items():
        source = node.needs.get(need)
        if need in node.spec.inputs or source is None:
            if need not in node.spec.inputs and not declared.optional:
                yield Mistake(
                    f"inputs.{need}", f"stage '{node.name}' needs a {declared.kind}, and nothing makes it",
                    f"give {node.name}.inputs.{need}=FINGERPRINT|RUN|PATH, or name a stage in the pipeline",
                )
            continue
        for one in source if isinstance(source, list) else [source]:
            if one in nodes:
                specs[need] = nodes[one].spec
                made = nodes[one].spec.makes
                if made != declared.kind and not (declared.kind == "tokenizer" and made == "model"):
                    yield Mistake(f"needs.{need}", f"is a {declared.kind}, and stage '{one}' makes a {made}", "name another stage")
    if all(one in nodes for s in node.needs.values() for one in (s if isinstance(s, list) else [s])) or not names:
        yield from node.spec.check_needs(specs)


def locate(composition: Composition, store: Store, runs: Path) -> None:
    """Find given inputs and fill in the fingerprint of every stage. Reads source data once, with a cache.

    Raises:
        UserError: a given input does not exist, or is of another kind.
    """
    for node in composition.nodes.values():
        for need, reference in node.spec.inputs.items():
            declared = node.spec.needs[need]
            parts = [part for part in reference.split(",") if part] if declared.many else [reference]
            node.given[need] = {_short(part): _given(part, declared.kind, node, need, store, runs) for part in parts}
        node.fingerprint = fingerprint(
            kind=node.spec.makes, stage=node.kind, version=node.spec.version,
            config=as_data(node.spec, result_only=True), inputs=input_fingerprints(node, composition),
            source=_sources(node, store),
        )


def input_fingerprints(node: Node, composition: Composition) -> dict[str, str | list[str]]:
    """The fingerprint, or fingerprints, of each need."""
    found: dict[str, str | list[str]] = {}
    for need, source in node.needs.items():
        if isinstance(source, list):
            found[need] = [composition.nodes[one].fingerprint for one in source]
        else:
            found[need] = composition.nodes[source].fingerprint
    for need, inputs in node.given.items():
        prints = [one.fingerprint for one in inputs.values()]
        found[need] = prints if node.spec.needs[need].many else prints[0]
    return found


def _short(reference: str) -> str:
    return Path(reference).name[:24] or reference[:24]


def _given(reference: str, kind: str, node: Node, need: str, store: Store, runs: Path) -> Input:
    key = f"{node.name}.inputs.{need}"
    for folder in (Path(reference).expanduser(), runs / reference):
        link = folder / "artifact.json"
        if link.is_file():
            return _of_run(folder, kind, key, store)
    try:
        artifact = store.resolve(reference)
    except NoArtifact as error:
        folder = Path(reference).expanduser()
        if folder.is_dir() and kind in ("model", "tokenizer"):
            return External.at(kind, folder.resolve(), store.hasher)
        raise UserError(f"{key}={reference}: {error}. See `llmexp store list` and `llmexp status`.") from error
    if artifact.kind != kind and not (kind == "tokenizer" and artifact.kind == "model"):
        raise UserError(f"{key}={reference} is a {artifact.kind}; a {kind} is needed. See `llmexp store list {kind}`.")
    return artifact


def _of_run(folder: Path, kind: str, key: str, store: Store) -> Input:
    import json

    link = json.loads((folder / "artifact.json").read_text())
    artifact = store.find(link["kind"], link["fingerprint"])
    if artifact is None or artifact.kind != kind:
        raise UserError(f"{key}={folder}: that run made {link['kind']} {link['fingerprint'][:12]}, a {kind} that is still in the store is needed")
    return artifact


def _sources(node: Node, store: Store) -> dict[str, str]:
    found = user_sources(as_data(node.spec))
    describe = getattr(node.spec, "source", None)
    if describe is not None:
        found |= describe(store.hasher)
    return found
