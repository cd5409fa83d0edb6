"""A composition as specs: the stages in order, what each needs, and the fingerprints of their artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from llmexp.config.mistakes import CompositionError
from llmexp.config.spec import Mistake
from llmexp.config.typed import file_of, source_of
from llmexp.config.validate import Materialise, secret_paths, secret_values
from llmexp.model.families.base import fitting_overrides
from llmexp.model.folder import ModelFolderError, read_spec
from llmexp.stage.config import Need, Pretrain, RootSpec, StageSpec, TrainingStage
from llmexp.stage.context import Input
from llmexp.stage.given import WrongInput, find_given, on_hub, references
from llmexp.stage.heads import Head, Heads, read_head
from llmexp.store.config import PathsSpec
from llmexp.store.store import Store
from llmexp.track.masking import Mask, mask_of


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
    start: Input | None = None
    """What ``model.init_from`` names."""
    secret_paths: frozenset[str] = frozenset()
    """Places in ``spec`` whose values the environment gave."""
    fingerprint: str = ""
    data_hashes: dict[str, str] = field(default_factory=dict)
    """Of the files outside the store that it reads, as they are in the fingerprint."""

    def inputs(self, made: Mapping[str, Input]) -> dict[str, Input | dict[str, Input]]:
        """By need, what was given or else what stages ``made``; by name where a need takes many."""
        found: dict[str, Input | dict[str, Input]] = {}
        for need, source in self.needs.items():
            if need not in self.given:
                found[need] = {one: made[one] for one in source} if isinstance(source, list) else made[source]
        for need, given in self.given.items():
            found[need] = dict(given) if self.spec.needs[need].many else next(iter(given.values()))
        return found


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


def mistakes_of(cfg: DictConfig, sources: dict[str, str], *, to_run: bool = False) -> list[Mistake]:
    """Everything that is wrong with a composed tree: missing values, ranges, references, combinations.

    With ``to_run`` the mesh of each stage must be what the launcher starts; without, a mesh may be
    looked at that this launcher could not start.
    """
    composition, mistakes = _materialise(cfg, sources)
    if composition is not None and to_run:
        mistakes += [
            m for node in composition.nodes.values() for m in _check_world(node, composition, sources)
        ]
    return mistakes


def _check_world(node: Node, composition: Composition, sources: dict[str, str]) -> Iterator[Mistake]:
    """The launcher starts as many processes as the mesh of a training stage has."""
    if isinstance(node.spec, TrainingStage):
        world = composition.root.launcher.processes()
        for mistake in node.spec.parallel.check_world(world):
            path = f"{node.name}.parallel.{mistake.path}"
            yield replace(mistake, path=path, source=source_of(sources, f"stages.{path}"))


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
    nodes, secrets = {}, secret_paths(cfg)
    for name, entry in cfg.pipeline.stages.items():
        spec = specs.get(str(name))
        if spec is not None:
            needs = cast(dict[str, Any], OmegaConf.to_container(entry.needs))
            start = f"stages.{name}."
            nodes[str(name)] = Node(
                name=str(name),
                kind=str(entry.stage),
                spec=cast(StageSpec, spec),
                needs=needs,
                secret_paths=frozenset(p.removeprefix(start) for p in secrets if p.startswith(start)),
            )
    if root is not None:
        told: dict[tuple[str, str], Mistake] = {}
        for mistake in _check_inputs(nodes, cast(RootSpec, root).paths):
            stage = ".".join(mistake.path.split(".")[:2])
            entry = file_of(sources, f"pipeline.{stage}") if _is_edge(mistake) else ""
            source = mistake.source or source_of(sources, mistake.path) or entry
            # A line that gives an artifact to several stages is wrong once: at the last, which asked for it.
            once = source if _is_edge(mistake) and source else mistake.path
            told[once, mistake.problem] = replace(mistake, source=source)
        make.mistakes += told.values()
    if root is None or make.mistakes:
        mask = mask_of(secret_values(cfg))
        return None, [_shown(m, mask) for m in make.mistakes]
    choices = cfg.hydra.runtime.choices
    title = str(choices.get("experiment") or choices.get("pipeline") or cfg.stage)
    return Composition(
        root=cast(RootSpec, root),
        nodes=nodes,
        # As they were written: resolved, they would hold what the environment holds.
        overrides=cast(list[str], OmegaConf.to_container(cfg.hydra.overrides.task, resolve=False)),
        title=title,
        secrets=secret_values(cfg),
    ), []


def _without_stages(cfg: DictConfig) -> DictConfig:
    root = cfg.copy()
    OmegaConf.set_struct(root, False)
    root.pop("hydra")
    root.stages = {}
    return root


def _shown(mistake: Mistake, mask: Mask) -> Mistake:
    """Paths as a person writes them, ``sft.optimizer.lr``; values without secrets."""
    words = (mask(text) for text in (mistake.problem, mistake.remedy, mistake.source))
    return Mistake(mistake.path.removeprefix("stages."), *words)


def _is_edge(mistake: Mistake) -> bool:
    """Whether a mistake lies in how the pipeline joins its stages."""
    return mistake.path.split(".")[2] in ("needs", "inputs")


def _check_inputs(nodes: dict[str, Node], paths: PathsSpec) -> Iterator[Mistake]:
    """What each stage needs is there, of the right kind, and fits; ``nodes`` lacks stages with mistakes."""
    store, runs = Store(paths.roots), paths.runs
    heads: dict[str, Head] = {}
    for node in nodes.values():
        needs: Heads = {}
        mistakes = [*_check_edges(node, nodes)]
        for need, declared in node.spec.needs.items():
            if need in node.spec.inputs:
                known, wrong = _given_heads(node.spec.inputs[need], need, declared, store, runs)
                mistakes += wrong
            else:
                known = [heads[one] for one in _makers(node, need) if one in heads]
            needs[need] = tuple(known)
        mistakes += node.spec.check_needs(needs)
        mistakes += _check_start(node.spec, needs, store, runs)
        heads[node.name] = node.spec.head(needs)
        yield from (m.under(f"stages.{node.name}") for m in mistakes)


def _check_edges(node: Node, nodes: dict[str, Node]) -> Iterator[Mistake]:
    """Every need has a maker of the right kind, or is given."""
    for need, declared in node.spec.needs.items():
        makers = _makers(node, need)
        if need in node.spec.inputs:
            continue
        if not makers and not declared.optional:
            yield Mistake(
                f"inputs.{need}",
                f"stage '{node.name}' needs a {declared.kind}, and nothing makes it",
                f"give {node.name}.inputs.{need}=FINGERPRINT|RUN|PATH, or name a stage in the pipeline",
            )
        for one in makers:
            if one in nodes and not declared.accepts(nodes[one].spec.makes):
                yield Mistake(
                    f"needs.{need}",
                    f"is a {declared.kind}, and stage '{one}' makes a {nodes[one].spec.makes}",
                    "name another stage",
                )


def _makers(node: Node, need: str) -> list[str]:
    source = node.needs.get(need, [])
    return source if isinstance(source, list) else [source]


def _given_heads(
    given: str, need: str, declared: Need, store: Store, runs: Path
) -> tuple[list[Head], list[Mistake]]:
    """What is known of each artifact given for a need, and what is wrong with the references."""
    known, mistakes = [], []
    for reference in references(given, declared):
        try:
            found = find_given(reference, declared, store, runs)
            folder = found if isinstance(found, Path) else found.path
            kind = declared.kind if isinstance(found, Path) else found.kind
            known.append(read_head(kind, folder))
        except WrongInput as error:
            if on_hub(reference, declared):
                known.append(Head())  # a check asks no network: it will be known when it is there
            else:
                mistakes.append(Mistake(f"inputs.{need}", error.problem, error.remedy))
        except ModelFolderError as error:
            mistakes.append(Mistake(f"inputs.{need}", str(error), "give the folder of a model"))
    return known, mistakes


def _check_start(spec: StageSpec, needs: Heads, store: Store, runs: Path) -> Iterator[Mistake]:
    """What ``model.init_from`` names is there, and is the model that is configured."""
    if not isinstance(spec, Pretrain) or spec.model.init_from is None:
        return
    reference, need, path = spec.model.init_from, Need("model"), "model.init_from"
    try:
        found = find_given(reference, need, store, runs)
        stored = read_spec(found if isinstance(found, Path) else found.path)
    except WrongInput as error:
        if not on_hub(reference, need):  # a check asks no network
            yield Mistake(path, error.problem, error.remedy)
        return
    except ModelFolderError as error:
        yield Mistake(path, str(error), "give the folder of a model")
        return
    overrides = fitting_overrides(spec.model, stored)
    if overrides:
        yield Mistake(path, f"{reference} holds another model than the one configured", f"set {overrides}")
    rows, tokens = (
        stored.vocab_size or 0,
        max((head.vocab_size or 0 for head in needs["tokenizer"]), default=0),
    )
    if rows < tokens:
        yield Mistake(
            path,
            f"{reference} has a vocabulary of {rows}, and the tokenizer one of {tokens}",
            "take the model's own tokenizer, with inputs.tokenizer",
        )
