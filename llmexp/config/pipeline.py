"""The pipeline that a composition runs: the one that is named, or the default one of a stage, less what is given."""

from __future__ import annotations

import dataclasses
from typing import Any

from hydra._internal.config_repository import IConfigRepository
from omegaconf import DictConfig, OmegaConf, open_dict

from llmexp.config.lines import Line
from llmexp.config.mistakes import CompositionError, choices, nearest
from llmexp.config.spec import Mistake
from llmexp.config.typed import Typing, field_types, spec_class


@dataclasses.dataclass
class Entry:
    """One stage of a pipeline: its type, what it needs from which stages, its own override lines."""

    stage: str
    needs: dict[str, Any]
    overrides: list[str]


def effective_pipeline(
    loader: Any, cfg: DictConfig, repo: IConfigRepository, lines: list[Line]
) -> dict[str, Entry]:
    """The entries to compose, in an order in which each comes after what it needs.

    Writes the entries back to ``cfg.pipeline``, so that the composition says what it runs.

    Raises:
        CompositionError: the pipeline cannot be read at all (unknown stage type, a cycle, a need of nobody).
    """
    target = None
    if cfg.pipeline is None:
        target = str(cfg.stage)
        _load_default(loader, cfg, repo, target)
    entries = {
        str(name): Entry(str(e.stage), OmegaConf.to_container(e.needs), [str(o) for o in e.overrides])  # type: ignore[arg-type]
        for name, e in cfg.pipeline.stages.items()
    }
    _check_entries(loader, entries, repo)
    given = {(name, need) for line in lines for name, need in _given(line, entries, repo)}
    targets = _targets(entries, target)
    kept = _ancestors(entries, targets, given)
    ordered = {name: entries[name] for name in _topological(entries) if name in kept}
    for name, entry in ordered.items():
        entry.needs = {need: source for need, source in entry.needs.items() if (name, need) not in given}
    with open_dict(cfg):
        cfg.pipeline.stages = {n: _typed_entry(cfg, e) for n, e in ordered.items()}
    return ordered


def _typed_entry(cfg: DictConfig, entry: Entry) -> Any:
    element = cfg.pipeline.stages._metadata.element_type
    return OmegaConf.structured(element(stage=entry.stage, needs=entry.needs, overrides=entry.overrides))


def _load_default(loader: Any, cfg: DictConfig, repo: IConfigRepository, target: str) -> None:
    options = repo.get_group_options("stage")
    if target not in options:
        remedy = nearest(target, options) or f"stages: {choices(options)}"
        raise CompositionError(
            [
                *loader.mistakes,
                Mistake("stage", f"there is no stage '{target}'", remedy, loader.sources.get("stage", "")),
            ]
        )
    name = str(repo.load_config(f"stage/{target}").config.default_pipeline)
    loaded = repo.load_config(f"pipeline/{name}")
    if loaded is None:
        raise CompositionError(
            [
                Mistake(
                    f"stage/{target}.default_pipeline",
                    f"there is no pipeline '{name}'",
                    "name an option of conf/pipeline",
                )
            ]
        )
    typing = Typing({"pipeline": f"pipeline/{name}.yaml"})
    expected = field_types(spec_class(repo.load_config("config").config["_target_"]))["pipeline"]
    kind = next(a for a in getattr(expected, "__args__", (expected,)) if a is not type(None))
    cfg.pipeline = typing.node(OmegaConf.to_container(loaded.config, resolve=False), kind, "pipeline")
    loader.mistakes += typing.mistakes


def _check_entries(loader: Any, entries: dict[str, Entry], repo: IConfigRepository) -> None:
    options = repo.get_group_options("stage")
    reserved = set(repo.get_group_options("", None)) | {"hydra", "stages", "overrides"}
    wrong = []
    for name, entry in entries.items():
        path = f"pipeline.stages.{name}"
        if name in reserved:
            wrong.append(
                Mistake(
                    path,
                    f"a stage may not be named like the group or root key '{name}'",
                    "give it another name",
                )
            )
        if entry.stage not in options:
            wrong.append(
                Mistake(
                    f"{path}.stage",
                    f"there is no stage type '{entry.stage}'",
                    nearest(entry.stage, options) or f"types: {choices(options)}",
                )
            )
            continue
        known = stage_class(entry.stage, repo).needs  # type: ignore[attr-defined]
        for need, source in entry.needs.items():
            if need not in known:
                wrong.append(
                    Mistake(
                        f"{path}.needs.{need}",
                        f"{entry.stage} needs no '{need}'",
                        nearest(need, known) or f"it needs: {choices(known)}",
                    )
                )
            for one in source if isinstance(source, list) else [source]:
                if one not in entries:
                    wrong.append(
                        Mistake(
                            f"{path}.needs.{need}",
                            f"there is no stage '{one}' in this pipeline",
                            nearest(str(one), entries) or f"stages: {choices(entries)}",
                        )
                    )
    if wrong:
        raise CompositionError([*loader.mistakes, *wrong])


def stage_class(kind: str, repo: IConfigRepository) -> Any:
    """The spec class of a stage type."""
    return spec_class(str(repo.load_config(f"stage/{kind}").config["_target_"]))


def _given(line: Line, entries: dict[str, Entry], repo: IConfigRepository) -> list[tuple[str, str]]:
    """Which (stage, need) a line gives from outside: ``inputs.x=…`` for all that need x, or ``name.inputs.x=…``."""
    parts = line.key.split(".")
    if line.override.is_delete():
        return []
    if len(parts) == 2 and parts[0] == "inputs":
        return [(n, parts[1]) for n, e in entries.items() if parts[1] in stage_class(e.stage, repo).needs]
    if len(parts) == 3 and parts[0] in entries and parts[1] == "inputs":
        return [(parts[0], parts[2])]
    return []


def _targets(entries: dict[str, Entry], target: str | None) -> list[str]:
    if target is not None:
        return [[n for n, e in entries.items() if e.stage == target][-1]]
    needed = {
        one
        for e in entries.values()
        for source in e.needs.values()
        for one in (source if isinstance(source, list) else [source])
    }
    return [name for name in entries if name not in needed]


def _sources(entries: dict[str, Entry], name: str, given: set[tuple[str, str]]) -> list[str]:
    found: list[str] = []
    for need, source in entries[name].needs.items():
        if (name, need) not in given:
            found += source if isinstance(source, list) else [source]
    return found


def _ancestors(entries: dict[str, Entry], targets: list[str], given: set[tuple[str, str]]) -> set[str]:
    kept: set[str] = set()
    todo = list(targets)
    while todo:
        name = todo.pop()
        if name not in kept:
            kept.add(name)
            todo += _sources(entries, name, given)
    return kept


def _topological(entries: dict[str, Entry]) -> list[str]:
    """Stage names, each after what it needs, otherwise in the order in which they are written."""
    done: list[str] = []
    visiting: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in visiting:
            cycle = " -> ".join([*visiting[visiting.index(name) :], name])
            raise CompositionError(
                [
                    Mistake(
                        "pipeline.stages", f"these stages need each other: {cycle}", "remove one of the needs"
                    )
                ]
            )
        visiting.append(name)
        for one in _sources(entries, name, set()):
            visit(one)
        visiting.remove(name)
        done.append(name)

    for name in entries:
        visit(name)
    return done
