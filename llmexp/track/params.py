"""Nested configurations as flat parameters whose keys never collide."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any


def flatten(nested: Mapping[str, Any]) -> dict[str, str]:
    """``{"model": {"d_model": 64}}`` as ``{"model.d_model": "64"}``.

    A dot within a key is written ``\\.``, so different places never share a key. Lists of plain
    values become JSON; lists that hold dicts are numbered.
    """
    return dict(_flat("", nested))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            name = str(key).replace("\\", "\\\\").replace(".", "\\.")
            yield from _flat(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        for i, inner in enumerate(value):
            yield from _flat(f"{prefix}.{i}", inner)
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(jsonable(value))


def jsonable(value: Any) -> Any:
    """A value as JSON data: numbers that JSON has no word for, and objects, become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(v) for v in value]
    return str(value)
