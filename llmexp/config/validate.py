"""From typed nodes to specs, once, with everything that is wrong collected on the way."""

from __future__ import annotations

import importlib.util
import math
import re
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from llmexp.config.mistakes import choices, nearest, nearest_key
from llmexp.config.spec import Mistake, Spec, settings
from llmexp.config.typed import REFERENCE, describe, field_types, leaves, source_of, written

CREDENTIALS = re.compile(r"\w+://([^/\s]+)@")
"""The user and password of an address: all before the last @ of its host's part."""


class Materialise:
    """Builds specs bottom-up; a node with a mistake becomes None, its siblings are still built."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self.mistakes: list[Mistake] = []

    def wrong(self, path: str, problem: str, remedy: str = "") -> None:
        """Record a mistake with the place its value came from."""
        self.mistakes.append(Mistake(path, problem, remedy, source_of(self.sources, path)))

    def spec(self, node: DictConfig, path: str = "") -> Spec | None:
        """The spec of a typed node, or None where it, or something in it, is wrong."""
        cls = typing.cast(type[Spec], OmegaConf.get_type(node))
        before = len(self.mistakes)
        values = {}
        for field in settings(cls):
            where = f"{path}.{field.name}" if path else field.name
            values[field.name] = self._value(node, field.name, where, field_types(cls)[field.name])
            if values[field.name] is not None:
                self._bounds(values[field.name], where, field.metadata)
        if len(self.mistakes) > before:
            return None
        spec = cls(**values)
        self.mistakes += [self._located(m.under(path)) for m in (*spec.check(), *_uninstalled(cls))]
        return spec if len(self.mistakes) == before else None

    def _located(self, mistake: Mistake) -> Mistake:
        return Mistake(
            mistake.path,
            mistake.problem,
            mistake.remedy,
            mistake.source or source_of(self.sources, mistake.path),
        )

    def _value(self, node: DictConfig | ListConfig, key: Any, path: str, kind: Any) -> Any:
        if OmegaConf.is_missing(node, key):
            self.wrong(path, "a value is missing", _give(path, kind))
            return None
        try:
            value = node[key]
        except OmegaConfBaseException as error:
            raw, why = written(node, key), str(error).splitlines()[0]
            remedy = "name a key that exists, or set the environment variable"
            if isinstance(error, InterpolationKeyError):
                known = {leaf for _, _, leaf in leaves(node._get_root())}
                named = [target for target in _targets(path, str(raw)) if target not in known]
                remedy = nearest_key(named[0], known) if named else remedy
            elif "Recursive" in why:
                remedy = "these values name each other: write one of them out"
            self.wrong(path, f"{raw} cannot be resolved: {why}", remedy or "name a key that exists")
            return None
        if isinstance(value, DictConfig):
            if value._metadata.object_type not in (dict, None):
                return self.spec(value, path)
            inner = (typing.get_args(kind) or (None, None))[-1]
            return {k: self._value(value, k, f"{path}.{k}", inner) for k in map(str, value)}
        if isinstance(value, ListConfig):
            inner = next((a for a in typing.get_args(kind) if a is not type(None)), None)
            return [self._value(value, i, f"{path}.{i}", inner) for i in range(len(value))]
        return value

    def _bounds(self, value: Any, path: str, metadata: typing.Mapping[str, Any]) -> None:
        for one in value if isinstance(value, list) else [value]:
            self._bound(one, path, metadata)

    def _bound(self, value: Any, path: str, metadata: typing.Mapping[str, Any]) -> None:
        unit = f" {metadata['unit']}" if metadata.get("unit") else ""
        signs = {
            "ge": (">=", lambda v, b: v >= b),
            "gt": (">", lambda v, b: v > b),
            "le": ("<=", lambda v, b: v <= b),
            "lt": ("<", lambda v, b: v < b),
        }
        if isinstance(value, float) and not math.isfinite(value):
            self.wrong(path, f"{value} is not a finite number", "give a number")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            limits = {k: b for k, b in metadata.get("bounds", {}).items() if b is not None}
            if any(not signs[k][1](value, b) for k, b in limits.items()):
                span = " and ".join(f"{signs[k][0]} {b}" for k, b in limits.items())
                self.wrong(path, f"{value}{unit} is out of range", f"give a value {span}{unit}")
        allowed = metadata.get("choices", ())
        if allowed and isinstance(value, str) and value not in allowed:
            self.wrong(
                path,
                f"'{value}' is not one of {choices(allowed)}",
                nearest(value, allowed) or f"choose from {choices(allowed)}",
            )
        if metadata.get("path") and isinstance(value, str) and value:
            self._exists(value, path)

    def _exists(self, value: str, path: str) -> None:
        file = Path(value).expanduser()
        if not file.exists():
            siblings = [str(p) for p in file.parent.iterdir()] if file.parent.is_dir() else []
            self.wrong(
                path,
                f"'{value}' does not exist",
                nearest(str(file), siblings) or f"relative paths start at {Path.cwd()}",
            )


def _uninstalled(cls: type[Spec]) -> Iterator[Mistake]:
    """The modules that a spec runs on are there. They are not imported."""
    missing = [name for name in cls.needs_modules if importlib.util.find_spec(name) is None]
    if missing:
        yield Mistake(
            "",
            f"runs on {', '.join(missing)}, which this Python does not have",
            f"pip install 'llmexp[{cls.extra}]'",
        )


def _give(path: str, kind: Any) -> str:
    """How to give a value that is missing."""
    key = path.split(".", 2)[-1] if path.startswith("stages.") else path
    if isinstance(kind, type) and issubclass(kind, Spec):
        return f"choose with {key}=OPTION: llmexp config {key.rpartition('.')[2]} lists them"
    return f"give {key}={_example(kind)}"


def _example(kind: Any) -> str:
    return (
        "<" + describe(kind).removeprefix("an ").removeprefix("a ").upper().replace(" ", "_") + ">"
        if not (isinstance(kind, type) and issubclass(kind, Enum))
        else "|".join(kind.__members__)
    )


LONG, LONG_CREDENTIAL = 8, 6
"""Characters from which a value of the environment, or a credential, is told from others by its text."""


def secret_values(cfg: DictConfig) -> frozenset[str]:
    """Texts that must be masked wherever they are tracked or printed.

    They are what the environment put into the composition, and the user and password of every
    address, as far as they are long: short ones stand in many a text by chance, and are hidden
    by their place (``secret_paths``), or within their address.
    """
    found: set[str] = set()
    for holder, key, _ in leaves(cfg):
        raw = written(holder, key)
        if not isinstance(raw, str):
            continue
        found |= {part for part in credentials(raw) if "${" not in part}
        if "${oc.env:" in raw:
            try:
                value = str(holder[key])
            except OmegaConfBaseException:
                continue
            found |= {value} if len(value) >= LONG else set()
            found |= credentials(value)
    return frozenset(found)


def secret_paths(cfg: DictConfig) -> frozenset[str]:
    """Places of the tree whose values the environment gives, be it by way of other places."""
    raws = {path: written(holder, key) for holder, key, path in leaves(cfg)}
    refers = {path: raw for path, raw in raws.items() if isinstance(raw, str) and "${" in raw}
    found = {path for path, raw in refers.items() if "${oc.env:" in raw}
    while True:
        further = {
            path + secret.removeprefix(target)
            for path, raw in refers.items()
            for target in _targets(path, raw)
            for secret in found
            if secret == target or secret.startswith(f"{target}.")
        }
        if further <= found:
            return frozenset(found)
        found |= further


def _targets(path: str, raw: str) -> Iterator[str]:
    """The places that the interpolations of the value at ``path`` name; leading dots go up from it."""
    for dots, name in REFERENCE.findall(raw):
        above = path.split(".")[: -len(dots)] if dots else []
        yield ".".join([*above, name])


def credentials(text: str) -> set[str]:
    """Long ones of what stands before the @ of an address: ``user:password`` whole, and the password."""
    found: set[str] = set()
    for match in CREDENTIALS.finditer(text):
        found |= {match[1], match[1].partition(":")[2]}
    return {part for part in found if len(part) >= LONG_CREDENTIAL}
