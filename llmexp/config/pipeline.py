"""The pipeline that a composition runs: the one named, or a stage's default one, less what is given."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from hydra._internal.config_repository import IConfigRepository
from omegaconf import DictConfig, OmegaConf, open_dict

from llmexp.config.files import DEFAULT_PIPELINE, file_name, raw
from llmexp.config.given import Entry, placed
from llmexp.config.lines import PIPELINE, Line, parse_lines
from llmexp.config.mistakes import CompositionError, choices, nearest
from llmexp.config.spec import Mistake
from llmexp.config.typed import Typing, field_types, file_of, source_of, spec_class

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""What a stage may be called: its name stands before a dot in overrides."""


@dataclasses.dataclass
class Pipeline:
    """What is to be composed: the stages, each after what it needs, and the lines, each at its stage."""

    entries: dict[str, Entry]
    lines: list[Line]
    spared: set[str]
    """Stages that are not composed, since what they make is given."""


def effective_pipeline(loader: Any, cfg: DictConfig, repo: IConfigRepository, lines: list[Line]) -> Pipeline:
    """The stages to compose, without those whose artifacts are given.

    Writes the entries back to ``cfg.pipeline``, so that the composition says what it runs.

    Raises:
        CompositionError: the pipeline cannot be read at all (unknown stage type, a cycle, a need of nobody).
    """
    target = None
    if cfg.pipeline is None:
        target = str(cfg.stage)
        _load_default(loader, cfg, repo, target)
    entries = _entries(loader, cfg, repo)
    _refuse(loader, list(_wrong_entries(entries, repo)))
    ordered = _topological(loader, entries)
    if target is not None:
        target = next(n for n in reversed(ordered) if entries[n].stage == target)
    given = placed(entries, lines, target)
    loader.mistakes += given.mistakes
    kept = _ancestors(entries, [target] if target is not None else _targets(entries), given.given)
    names = [name for name in ordered if name in kept]
    for name in names:
        needs = entries[name].needs
        entries[name].needs = {need: made for need, made in needs.items() if (name, need) not in given.given}
    with open_dict(cfg):
        cfg.pipeline.stages = {name: _typed_entry(cfg, entries[name]) for name in names}
    lines = given.lines + [line for name, line in given.stand_ins if name in kept]
    return Pipeline({name: entries[name] for name in names}, lines, set(ordered) - kept)


def _refuse(loader: Any, wrong: list[Mistake]) -> None:
    """Stop here: without a pipeline that can be read, there are no stages to compose."""
    if wrong:
        located = [dataclasses.replace(m, source=m.source or file_of(loader.sources, m.path)) for m in wrong]
        raise CompositionError([*loader.mistakes, *located])


def _typed_entry(cfg: DictConfig, entry: Entry) -> Any:
    element = cfg.pipeline.stages._metadata.element_type
    return OmegaConf.structured(
        element(stage=entry.stage, needs=entry.needs, overrides=[line.text for line in entry.own])
    )


def _load_default(loader: Any, cfg: DictConfig, repo: IConfigRepository, target: str) -> None:
    options = repo.get_group_options("stage")
    if target not in options:
        remedy = nearest(target, options) or f"stages: {choices(options)}"
        _refuse(loader, [Mistake("stage", f"there is no stage '{target}'", remedy)])
    name = str(raw(repo, f"stage/{target}").get(DEFAULT_PIPELINE))
    if name not in repo.get_group_options("pipeline"):
        wrong = f"there is no pipeline '{name}'"
        _refuse(
            loader, [Mistake(f"stage/{target}.{DEFAULT_PIPELINE}", wrong, "name an option of conf/pipeline")]
        )
    loader.sources["pipeline"] = file_name(repo, f"pipeline/{name}")
    typing = Typing(loader.sources)
    expected = field_types(spec_class(str(raw(repo, "config")["_target_"])))["pipeline"]
    kind = next(a for a in getattr(expected, "__args__", (expected,)) if a is not type(None))
    loaded = OmegaConf.to_container(raw(repo, f"pipeline/{name}"), resolve=False)
    cfg.pipeline = typing.node(loaded, kind, "pipeline")
    loader.mistakes += typing.mistakes


def _entries(loader: Any, cfg: DictConfig, repo: IConfigRepository) -> dict[str, Entry]:
    """The stages as written; their own override lines parsed."""
    if OmegaConf.is_missing(cfg.pipeline, "stages") or not cfg.pipeline.stages:
        _refuse(loader, [Mistake("pipeline.stages", "there is no stage", "name one: NAME: {stage: TYPE}")])
    found, options = {}, repo.get_group_options("stage")
    for name, entry in cfg.pipeline.stages.items():
        kind = "" if OmegaConf.is_missing(entry, "stage") else str(entry.stage)
        where = source_of(loader.sources, f"pipeline.stages.{name}.overrides.0") or "the pipeline"
        needs: Any = OmegaConf.to_container(entry.needs)
        own = parse_lines(entry.overrides, f"{where} ({name})", loader.mistakes, PIPELINE)
        spec = spec_class(str(raw(repo, f"stage/{kind}")["_target_"])) if kind in options else None
        found[str(name)] = Entry(str(name), kind, needs, own, spec)
    return found


def _wrong_entries(entries: dict[str, Entry], repo: IConfigRepository) -> Iterator[Mistake]:
    options = repo.get_group_options("stage")
    reserved = set(repo.get_group_options("", None)) | {"hydra", "stages", "overrides", "inputs"}
    for name, entry in entries.items():
        path = f"pipeline.stages.{name}"
        if name in reserved:
            wrong = f"a stage may not be named like the group or root key '{name}'"
            yield Mistake(path, wrong, "give it another name")
        elif not NAME.fullmatch(name):
            yield Mistake(
                path, f"'{name}' cannot stand before a dot in overrides", "use letters, digits, _ and -"
            )
        if entry.spec is None:
            remedy = nearest(entry.stage, options) or f"types: {choices(options)}"
            yield Mistake(f"{path}.stage", f"there is no stage type '{entry.stage}'", remedy)
            continue
        for need in entry.needs:
            yield from _wrong_need(entry, need, entries)


def _wrong_need(entry: Entry, need: str, entries: dict[str, Entry]) -> Iterator[Mistake]:
    path = f"pipeline.stages.{entry.name}.needs.{need}"
    if need not in entry.declared:
        known = choices(entry.declared) or "nothing"
        yield Mistake(
            path, f"{entry.stage} needs no '{need}'", nearest(need, entry.declared) or f"it needs: {known}"
        )
        return
    if isinstance(entry.needs[need], list) and not entry.declared[need].many:
        yield Mistake(path, f"{entry.stage} takes one {need}, and this is a list", "name one stage")
    for one in entry.makers(need):
        if one not in entries:
            remedy = nearest(one, entries) or f"stages: {choices(entries)}"
            yield Mistake(path, f"there is no stage '{one}' in this pipeline", remedy)


def _targets(entries: dict[str, Entry]) -> list[str]:
    """Stages that no other one needs."""
    needed = {one for entry in entries.values() for need in entry.needs for one in entry.makers(need)}
    return [name for name in entries if name not in needed]


def _ancestors(entries: dict[str, Entry], targets: list[str], given: set[tuple[str, str]]) -> set[str]:
    """The targets, and whatever makes what they need and nobody gave."""
    kept: set[str] = set()
    todo = list(targets)
    while todo:
        name = todo.pop()
        if name not in kept:
            kept.add(name)
            missing = [need for need in entries[name].needs if (name, need) not in given]
            todo += [one for need in missing for one in entries[name].makers(need)]
    return kept


def _topological(loader: Any, entries: dict[str, Entry]) -> list[str]:
    """Stage names, each after what it needs, otherwise in the order in which they are written."""
    done: list[str] = []
    visiting: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in visiting:
            cycle = " -> ".join([*visiting[visiting.index(name) :], name])
            wrong = f"these stages need each other: {cycle}"
            _refuse(loader, [Mistake("pipeline.stages", wrong, "remove one of the needs")])
        visiting.append(name)
        for need in entries[name].needs:
            for one in entries[name].makers(need):
                visit(one)
        visiting.remove(name)
        done.append(name)

    for name in entries:
        visit(name)
    return done
