"""What can be set: groups, options with their headers, and the fields of specs."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from llmexp.cli.terminal import value_text
from llmexp.config.loader import SpecLoader
from llmexp.config.spec import MISSING, Spec, settings
from llmexp.config.typed import describe, field_types, spec_class

REQUIRED = "required"
"""Shown as the default of a field without one."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One YAML file of a group."""

    group: str
    name: str
    header: str
    """Its leading comment."""
    file: str
    spec: str
    """Its ``_target_``; empty when it names none."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One setting of a spec, as declared."""

    name: str
    type: str
    unit: str
    default: str
    description: str
    limits: str
    """Bounds or choices; empty for none."""
    changes_result: bool
    """Whether another value makes another artifact."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a composed node, with its value and where that came from."""

    key: str
    """Path below the node."""
    value: str
    source: str
    """A file, an override, or ``default``."""
    field: Field


def groups(loader: SpecLoader) -> list[str]:
    """Every group of the config tree but Hydra's own."""
    return [name for name in loader.repository.get_group_options("", ObjectType.GROUP) if name != "hydra"]


def options(loader: SpecLoader, group: str) -> list[Option]:
    """The options of a group, by name."""
    return [
        option(loader, group, name) for name in loader.repository.get_group_options(group, ObjectType.CONFIG)
    ]


def option(loader: SpecLoader, group: str, name: str) -> Option:
    """One option, its header comment read from the file that a composition would read."""
    loaded: Any = loader.repository.load_config(f"{group}/{name}")
    target = loaded.config.get("_target_", "") if isinstance(loaded.config, DictConfig) else ""
    file, text = _source(str(loaded.path), f"{group}/{name}.yaml")
    return Option(group, name, header(text), file, str(target))


def _source(base: str, relative: str) -> tuple[str, str]:
    """(place, text) of a config file in a folder or in a package."""
    if base.startswith("pkg://"):
        from importlib.resources import files

        module = base.removeprefix("pkg://")
        return f"{base}/{relative}", files(module).joinpath(relative).read_text(encoding="utf-8")
    path = Path(base.removeprefix("file://")) / relative
    if not path.is_file():
        return base, ""  # a node that a plugin has registered: it has no file
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return str(shown), path.read_text(encoding="utf-8")


def header(text: str) -> str:
    """The comment at the beginning of a YAML file; Hydra's own first line is no part of it."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            lines.append(line.removeprefix("#").removeprefix(" ").rstrip())
    return "\n".join(lines)


def fields(cls: type[Spec]) -> list[Field]:
    """The declared settings of a spec, in its order."""
    kinds = field_types(cls)  # type: ignore[arg-type]
    return [
        Field(
            field.name,
            _type_text(kinds[field.name]),
            field.metadata.get("unit", ""),
            _default(field),
            field.metadata.get("help", ""),
            _limits(field.metadata),
            bool(field.metadata.get("result", True)),
        )
        for field in settings(cls)
    ]


def _type_text(kind: Any) -> str:
    """A type in a word or two."""
    words = {"an integer": "int", "a number": "float", "true or false": "bool", "a string": "str"}
    arguments = typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(kind.__members__)
    if typing.get_origin(kind) in (list, dict):
        return f"{typing.get_origin(kind).__name__}[{', '.join(_type_text(a) for a in arguments)}]"
    if arguments:
        return " | ".join("null" if a is type(None) else _type_text(a) for a in arguments)
    if kind is Any:
        return "any"
    text = describe(kind)
    return words.get(text, text.removeprefix("a "))


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else MISSING
    if isinstance(value, Spec):
        return type(value).__name__
    if isinstance(value, Enum):
        return value.name
    return (
        REQUIRED
        if isinstance(value, str) and value == MISSING
        else value_text(value)
        if value != ""
        else '""'
    )


def _limits(metadata: typing.Mapping[str, Any]) -> str:
    if metadata.get("choices"):
        return " | ".join(metadata["choices"])
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = {key: bound for key, bound in metadata.get("bounds", {}).items() if bound is not None}
    return ", ".join(f"{signs[key]} {bound:g}" for key, bound in bounds.items())


def node_settings(node: DictConfig, path: str, sources: dict[str, str]) -> Iterator[Setting]:
    """Every field of a composed node at ``path`` of the tree, those of the specs in it included."""
    yield from _settings(node, path, "", sources)


def _settings(node: DictConfig, path: str, prefix: str, sources: dict[str, str]) -> Iterator[Setting]:
    cls = typing.cast(type[Spec], OmegaConf.get_type(node))
    for field in fields(cls):
        key = f"{prefix}{field.name}"
        child = node._get_node(field.name)
        within = list(_specs_in(child, key))
        for name, inner in within:
            yield from _settings(inner, path, f"{name}.", sources)
        if not within:
            yield Setting(key, _value(node, field.name), _origin(f"{path}.{key}", sources), field)


def _specs_in(child: Any, key: str) -> Iterator[tuple[str, DictConfig]]:
    """The specs that a field holds: itself, or the values of its mapping or list."""
    if (
        not isinstance(child, (DictConfig, ListConfig))
        or child._is_none()
        or child._is_missing()
        or child._is_interpolation()
    ):
        return
    if isinstance(child, DictConfig) and is_spec(child):
        yield key, child
        return
    names: Any = list(child.keys()) if isinstance(child, DictConfig) else range(len(child))
    for name in names:
        inner = child._get_node(name)
        if isinstance(inner, DictConfig) and is_spec(inner):
            yield f"{key}.{name}", inner


def is_spec(node: DictConfig) -> bool:
    """Whether a node is typed by a spec."""
    kind = OmegaConf.get_type(node)
    return isinstance(kind, type) and issubclass(kind, Spec)


def _value(node: DictConfig, name: str) -> str:
    """A value as YAML has it; unresolvable ones as they are written."""
    if OmegaConf.is_missing(node, name):
        return MISSING
    try:
        value = node[name]
        if isinstance(value, (DictConfig, ListConfig)):
            value = OmegaConf.to_container(value, resolve=True, enum_to_str=True)
    except OmegaConfBaseException:
        raw = node._get_node(name)
        nested = isinstance(raw, (DictConfig, ListConfig)) and not raw._is_interpolation()
        value = OmegaConf.to_container(raw, resolve=False) if nested else raw._value()  # type: ignore
    return value.name if isinstance(value, Enum) else value_text(value)


def _origin(path: str, sources: dict[str, str]) -> str:
    """Where a field's own value came from: what set it, or part of it, last."""
    if path in sources:
        return sources[path]
    below = [source for key, source in sources.items() if key.startswith(path + ".")]
    return below[-1] if below else "default"


def documented(name: str) -> str:
    """The first paragraph of a spec's docstring, on one line."""
    return " ".join((spec_class(name).__doc__ or "").split("\n\n")[0].split())
