"""From raw YAML to typed nodes: each dict that names a spec becomes that spec, field by field."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from llmexp.config.mistakes import nearest
from llmexp.config.spec import Mistake, Spec, settings

ENTRY_POINTS = "llmexp.specs"
"""A package outside llmexp declares itself with an entry point of this group whose value is the package."""


@functools.cache
def declared_packages() -> frozenset[str]:
    """Top modules whose specs a config may name."""
    found = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return frozenset(point.value.partition(":")[0].split(".")[0] for point in found)


@functools.cache
def spec_class(name: str) -> type[Spec]:
    """The spec that ``_target_: name`` means.

    Raises:
        ValueError: the name is outside what may be named (nothing is imported then), or is no spec.
    """
    module, _, attribute = name.rpartition(".")
    top = module.split(".")[0]
    if not (module.endswith(".config") if top == "llmexp" else top in declared_packages()):
        raise ValueError(
            f"'{name}' may not be named here: only specs of llmexp.*.config, or of a package "
            f"that declares the entry point group '{ENTRY_POINTS}'"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"'{name}' does not exist: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Spec)):
        raise ValueError(f"'{name}' is not a spec")
    return found


_FIELD_TYPES: dict[type[Spec], dict[str, Any]] = {}


def field_types(cls: type[Spec]) -> dict[str, Any]:
    """Field name to declared type, ``_target_`` left out."""
    if cls not in _FIELD_TYPES:
        hints = typing.get_type_hints(cls)
        _FIELD_TYPES[cls] = {field.name: hints[field.name] for field in settings(cls)}
    return _FIELD_TYPES[cls]


_PROTOTYPES: dict[type[Spec], DictConfig] = {}


def _prototype(cls: type[Spec]) -> DictConfig:
    """A node of the spec with its defaults, to be copied."""
    if cls not in _PROTOTYPES:
        _PROTOTYPES[cls] = OmegaConf.structured(cls)
    return _PROTOTYPES[cls]


def _inner_spec(kind: Any) -> tuple[str, type[Spec]] | None:
    """How a field holds specs: ``("one", S)``, ``("dict", S)``, ``("list", S)``, or None."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        specs = [a for a in args if isinstance(a, type) and issubclass(a, Spec)]
        return ("one", specs[0]) if specs else None
    if isinstance(kind, type) and issubclass(kind, Spec):
        return ("one", kind)
    if origin is dict and isinstance(args[1], type) and issubclass(args[1], Spec):
        return ("dict", args[1])
    if origin is list and isinstance(args[0], type) and issubclass(args[0], Spec):
        return ("list", args[0])
    return None


def describe(kind: Any) -> str:
    """A declared type in the words of a message."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(kind.__members__)
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
    if isinstance(kind, type) and kind in names:
        return names[kind]
    if isinstance(kind, types.UnionType):
        return " or ".join("null" if a is type(None) else describe(a) for a in typing.get_args(kind))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return f"a list, each {describe(args[0])}"
    if origin is dict:
        return "a mapping"
    if isinstance(kind, type) and issubclass(kind, Spec):
        return f"a mapping with the fields of {kind.__name__}"
    return f"a {kind.__name__}" if isinstance(kind, type) else str(kind)


def source_of(sources: dict[str, str], path: str) -> str:
    """Where the value at a path, or the nearest node above it, came from."""
    while path:
        if path in sources:
            return sources[path]
        path = path.rpartition(".")[0]
    return ""


def file_of(sources: dict[str, str], path: str) -> str:
    """Where the node at a path was written, though it may hold no value itself."""
    while path:
        found = source_of(sources, path) or next(
            (source for key, source in sources.items() if key.startswith(path + ".")), ""
        )
        if found:
            return found
        path = path.rpartition(".")[0]
    return ""


class Typing:
    """Turns raw nodes of one composition into typed ones and collects what does not fit."""

    def __init__(self, sources: dict[str, str]) -> None:
        """``sources`` tells for a config path the file or override that set it."""
        self.mistakes: list[Mistake] = []
        self.sources = sources

    def wrong(self, path: str, problem: str, remedy: str) -> None:
        """Record a mistake with the place its value came from."""
        self.mistakes.append(Mistake(path, problem, remedy, source_of(self.sources, path)))

    def node(self, raw: Any, expected: type[Spec] | None, path: str) -> Any:
        """The typed node for ``raw``; a dict that names no spec takes the ``expected`` one."""
        if not isinstance(raw, dict):
            return raw
        cls = self._class_of(raw, expected, path)
        if cls is None:
            return OmegaConf.create(raw)
        node = _prototype(cls).copy()
        self.fill(node, cls, raw, path)
        return node

    def _class_of(self, raw: dict[str, Any], expected: type[Spec] | None, path: str) -> type[Spec] | None:
        name = raw.get("_target_")
        if name is None:
            return expected
        try:
            cls = spec_class(str(name))
        except ValueError as error:
            self.wrong(f"{path}._target_", str(error), "name a spec, or take one of the options")
            return expected
        if expected is not None and not issubclass(cls, expected):
            self.wrong(
                f"{path}._target_",
                f"{cls.__name__} is no {expected.__name__}",
                "choose an option of this group",
            )
            return expected
        return cls

    def fill(self, node: DictConfig, cls: type[Spec], raw: dict[str, Any], path: str) -> None:
        """Set the fields of a typed node from a raw dict."""
        for key, value in raw.items():
            if key != "_target_":
                self.set_field(node, cls, str(key), value, f"{path}.{key}" if path else str(key))

    def set_field(self, node: DictConfig, cls: type[Spec], key: str, value: Any, path: str) -> None:
        """Set one field, or record why it cannot be."""
        kinds = field_types(cls)
        if key not in kinds:
            remedy = nearest(key, kinds) or f"it has: {', '.join(sorted(kinds))}"
            self.wrong(path, f"there is no '{key}' in {cls.__name__}", remedy)
            return
        problem = _wrong_scalar(
            kinds[key],
            value,
            from_file=path not in self.sources or not self.sources[path].startswith("override"),
        )
        if problem:
            self.wrong(path, *problem)
            return
        try:
            node[key] = self._value(kinds[key], value, node, key, path)
        except OmegaConfBaseException:
            self.wrong(path, f"{value!r} is not {describe(kinds[key])}", f"give {describe(kinds[key])}")

    def _value(self, kind: Any, value: Any, node: DictConfig, key: str, path: str) -> Any:
        inner = _inner_spec(kind)
        if inner is None or value is None or (isinstance(value, str)):
            return value
        shape, cls = inner
        if shape == "one" and isinstance(value, dict):
            current = None if OmegaConf.is_missing(node, key) else node[key]
            if isinstance(current, DictConfig) and "_target_" not in value:
                self.fill(current, typing.cast(type[Spec], OmegaConf.get_type(current)), value, path)
                return current
            return self.node(value, cls, path)
        if shape == "dict" and isinstance(value, dict):
            return {str(k): self.node(v, cls, f"{path}.{k}") for k, v in value.items()}
        if shape == "list" and isinstance(value, list):
            return [self.node(v, cls, f"{path}.{i}") for i, v in enumerate(value)]
        return value


def _wrong_scalar(kind: Any, value: Any, from_file: bool) -> tuple[str, str] | None:
    """What OmegaConf would convert silently and a person would not expect."""
    allowed = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if isinstance(value, bool) and bool not in allowed and str in allowed:
        return (
            f"{str(value).lower()} is not a string",
            "YAML reads a bare yes, no, on, off as true or false: put the value in quotes"
            if from_file
            else f"to mean the text, write it in quotes within the shell's: \"'{str(value).lower()}'\"",
        )
    if isinstance(value, bool) and bool not in allowed and (int in allowed or float in allowed):
        return (f"{str(value).lower()} is not {describe(kind)}", f"give {describe(kind)}")
    if str in allowed and not {int, float} & set(allowed) and isinstance(value, (int, float)) and from_file:
        return (
            f"{value!r} is a number, not a string",
            "YAML reads 010 as 8 and 12:30 as 750: put the value in quotes",
        )
    return None


REFERENCE = re.compile(r"\$\{(\.*)([^.:{}][^:{}]*)\}")
"""An interpolation of another place: its leading dots, and the path after them."""


def anchor_references(config: DictConfig, path: str) -> None:
    """Let interpolations in a composition that will be put at ``path`` name its keys as if it were the root.

    ``${model.n_heads}`` of the stage at ``stages.pretrain`` becomes ``${stages.pretrain.model.n_heads}``;
    what is no key of it is the root's.
    """

    def anchored(found: re.Match[str]) -> str:
        dots, name = found.groups()
        own = not dots and re.split(r"[.\[]", name, maxsplit=1)[0] in config
        return f"${{{path}.{name}}}" if own else found[0]

    for holder, key, _ in list(leaves(config)):
        raw = written(holder, key)
        if isinstance(raw, str) and "${" in raw:
            holder[key] = REFERENCE.sub(anchored, raw)


def leaves(node: Any, path: str = "") -> Iterator[tuple[DictConfig | ListConfig, Any, str]]:
    """Every leaf of a composed node as (container, key, path)."""
    if isinstance(node, DictConfig):
        keys: Any = list(node.keys()) if not node._is_missing() and not node._is_none() else []
    else:
        keys = range(len(node))
    for key in keys:
        child_path = f"{path}.{key}" if path else str(key)
        child = (
            node._get_node(key, validate_access=False)
            if isinstance(node, DictConfig)
            else node._get_node(key)
        )
        if isinstance(child, (DictConfig, ListConfig)) and not (
            child._is_missing() or child._is_none() or child._is_interpolation()
        ):
            yield from leaves(child, child_path)
        else:
            yield node, key, child_path


def written(holder: DictConfig | ListConfig, key: Any) -> Any:
    """A value as it is written: interpolations and the mark of a missing value are left as they are."""
    node: Any = holder._get_node(key)
    return None if node is None else node._value()


def spec_from(data: dict[str, Any]) -> Any:
    """The spec that :func:`llmexp.config.spec.as_data` wrote."""
    cls = spec_class(data["_target_"])
    values = {k: _from(v, field_types(cls).get(k)) for k, v in data.items() if k != "_target_"}
    return cls(**values)


def _from(value: Any, kind: Any) -> Any:
    """One value of :func:`spec_from`, given the declared type of its field."""
    for one in typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,):
        inner = typing.get_args(one)[-1] if typing.get_args(one) else None
        if isinstance(value, dict):
            return spec_from(value) if "_target_" in value else {k: _from(v, inner) for k, v in value.items()}
        if isinstance(value, list) and typing.get_origin(one) is list:
            return [_from(v, inner) for v in value]
        if isinstance(value, str) and isinstance(one, type) and issubclass(one, Enum):
            return one[value]
    return value
