"""Specs: what the nodes of the config tree become. Standard library only.

A spec is a keyword-only dataclass of plain data. It names, but never imports, the
runtime object that it builds, so that composing and checking cost no heavy import.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, ClassVar

MISSING = "???"
"""OmegaConf's mark of a value that a person must give."""


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with a composition, told to the person who wrote it."""

    path: str
    """Config path relative to the spec that reports it (``n_heads``); made absolute on the way up."""
    problem: str
    """What is wrong, with the values that are."""
    remedy: str = ""
    """What to do about it."""
    source: str = ""
    """The file or the override that set the value; filled in by the composition."""

    def under(self, prefix: str) -> Mistake:
        """The same mistake seen from the spec that holds this one at ``prefix``."""
        path = ".".join(part for part in (prefix, self.path) if part)
        return dataclasses.replace(self, path=path)


_NO_DEFAULT = object()


def setting(
    help: str,
    *,
    default: Any = _NO_DEFAULT,
    unit: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: tuple[str, ...] = (),
    result: bool = True,
    path: bool = False,
) -> Any:
    """Declare one field of a spec.

    ``help`` is one line for the reference page. Without ``default`` the value is mandatory.
    ``ge gt le lt`` bound numbers (each element, where the field is a list); ``choices`` the
    allowed strings. ``result=False`` says that the value cannot change what the stage produces,
    so it is left out of the fingerprint. ``path=True`` marks a local file or folder that must
    exist when a composition is checked.
    """
    metadata = {
        "help": help,
        "unit": unit,
        "bounds": {"ge": ge, "gt": gt, "le": le, "lt": lt},
        "choices": choices,
        "result": result,
        "path": path,
    }
    if default is _NO_DEFAULT:
        return dataclasses.field(default=MISSING, metadata=metadata)
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Spec:
    """Base of all specs. Subclasses are decorated with ``@dataclass(kw_only=True)``.

    ``builds`` names the runtime class or function as ``module:name``; a spec without it is
    data alone. ``needs_modules`` are those that it runs on beyond what llmexp always needs, and ``extra`` is
    what brings them: ``pip install 'llmexp[web]'``. ``_target_`` is a field of every spec, so that a
    printed configuration can be loaded again.
    """

    builds: ClassVar[str] = ""
    needs_modules: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = inspect.get_annotations(cls)
        annotations["_target_"] = "str"
        cls.__annotations__ = annotations
        cls._target_ = f"{cls.__module__}.{cls.__qualname__}"  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        """The fields by name, nested specs left as they are, ``_target_`` left out."""
        return {f.name: getattr(self, f.name) for f in settings(self)}

    def build(self, **runtime: Any) -> Any:
        """Build the runtime object from this spec's values and from ``runtime`` keywords.

        Raises:
            TypeError: a runtime keyword has the name of a field: a value has one owner.
        """
        if not self.builds:
            raise TypeError(f"{type(self).__name__} builds nothing")
        values = self.values()
        overlap = values.keys() & runtime.keys()
        if overlap:
            raise TypeError(f"{type(self).__name__}.build: {sorted(overlap)} are config values")
        return target(self.builds)(**values, **runtime)

    def check(self) -> Iterator[Mistake]:
        """Constraints between the fields of this spec; ranges and choices are checked before."""
        yield from ()


def target(name: str) -> Any:
    """The object that ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def settings(spec: Spec | type[Spec]) -> list[dataclasses.Field]:
    """The declared fields of a spec, without ``_target_``."""
    return [f for f in dataclasses.fields(spec) if f.name != "_target_"]  # type: ignore[arg-type]


def as_data(value: Any, *, result_only: bool = False) -> Any:
    """A spec as plain JSON data, ``_target_`` included; with ``result_only`` as it is fingerprinted."""
    if isinstance(value, Spec):
        fields = [f for f in settings(value) if f.metadata.get("result", True) or not result_only]
        data = {f.name: as_data(getattr(value, f.name), result_only=result_only) for f in fields}
        return {"_target_": value._target_, **data}  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {str(k): as_data(v, result_only=result_only) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(v, result_only=result_only) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "name", None) or str(value)
