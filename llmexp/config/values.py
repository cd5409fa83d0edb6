"""Value overrides (``a.b=1``, ``+a.b=1``, ``++a.b=1``, ``~a.b``) on typed nodes."""

from __future__ import annotations

import types
import typing
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from llmexp.config.lines import Line
from llmexp.config.mistakes import choices, nearest
from llmexp.config.spec import Mistake, Spec
from llmexp.config.typed import Typing, field_types, leaves, written
from llmexp.config.unclaimed import no_such_key


def apply_value(
    config: DictConfig,
    line: Line,
    sources: dict[str, str],
    path: str,
    mistakes: list[Mistake],
    *,
    strict: bool,
) -> bool:
    """Apply one line to a typed node whose absolute config path is ``path``.

    Returns whether the node has the key. A missing key is a mistake when ``strict``, and no
    concern of this node otherwise. Values that do not fit are always mistakes.
    """
    key = line.key
    absolute = f"{path}.{key}" if path else key

    def wrong(problem: str, remedy: str) -> None:
        mistakes.append(Mistake(absolute, problem, remedy, line.source))

    parent = _walk(config, key.split(".")[:-1])
    last = key.split(".")[-1]
    if line.override.package is not None or parent is None or not _has(config, parent, key, last, line):
        if strict:
            wrong(f"there is no '{key}' here", _remedy(config, parent, key))
        return False
    if line.override.is_delete():
        _delete(parent, last, wrong)
        return True
    if (
        line.override.is_add()
        and not isinstance(line.override.value(), (dict, list))
        and _present(parent, last)
    ):
        wrong(
            "it already has a value, so + cannot add it",
            f"write {line.text.lstrip('+')}, or ++ to add or override",
        )
        return True
    sources[key] = line.source
    for below in [k for k in sources if k.startswith(key + ".")]:
        del sources[below]
    _set(parent, last, _value(parent, last, line), absolute, line, mistakes)
    return True


def _remedy(config: DictConfig, parent: DictConfig | ListConfig | None, key: str) -> str:
    known = {path for _, _, path in leaves(config)}
    if key.startswith("inputs."):
        # What a stage needs is no value yet.
        needs = getattr(_spec(config), "needs", {})
        return nearest(key[len("inputs.") :], needs) or f"this stage needs: {choices(needs) or 'nothing'}"
    keys = key.split(".")
    for end in range(1, len(keys)):
        holder = _walk(config, keys[: end - 1])
        if (
            isinstance(holder, DictConfig)
            and keys[end - 1] in holder
            and written(holder, keys[end - 1]) is None
        ):
            name = ".".join(keys[:end])
            return f"{name} is null: choose with {name}=OPTION"
    if isinstance(parent, DictConfig) and not len(parent):
        return "llmexp config lists every key"
    return no_such_key(key, known)


def _walk(config: DictConfig, keys: list[str]) -> DictConfig | ListConfig | None:
    node: Any = config
    for key in keys:
        if isinstance(node, ListConfig) and key.isdigit() and int(key) < len(node):
            node = node._get_node(int(key))
        elif isinstance(node, DictConfig) and not (node._is_none() or node._is_missing()):
            node = node._get_node(key, validate_access=False)
        else:
            return None
    usable = isinstance(node, (DictConfig, ListConfig)) and not (node._is_none() or node._is_missing())
    return node if usable else None


def _spec(node: Any) -> type[Spec] | None:
    kind = OmegaConf.get_type(node)
    return kind if isinstance(kind, type) and issubclass(kind, Spec) else None


def _has(config: DictConfig, parent: DictConfig | ListConfig, key: str, last: str, line: Line) -> bool:
    if isinstance(parent, ListConfig):
        return last.isdigit() and int(last) < len(parent)
    cls = _spec(parent)
    if cls is not None:
        return last in field_types(cls)
    if key.startswith("inputs."):
        return last in getattr(_spec(config), "needs", {})
    return (
        last in parent or line.override.is_add() or line.override.is_force_add() or not _holds_specs(parent)
    )


def _holds_specs(parent: DictConfig) -> bool:
    element = parent._metadata.element_type
    return isinstance(element, type) and issubclass(element, Spec)


def _present(parent: DictConfig | ListConfig, last: str) -> bool:
    if isinstance(parent, ListConfig):
        return True
    node = parent._get_node(last, validate_access=False)
    return node is not None and not node._is_none() and not node._is_missing()


def _delete(parent: DictConfig | ListConfig, last: str, wrong: Any) -> None:
    if isinstance(parent, ListConfig) or _spec(parent) is not None:
        wrong(
            "it is a declared setting and cannot be removed",
            "give it another value, or null where that is allowed",
        )
        return
    with open_dict(parent):
        del parent[last]


def _value(parent: DictConfig | ListConfig, last: str, line: Line) -> Any:
    """The override's value; what is written for a string field is kept letter by letter."""
    value = line.override.value()
    if line.key.startswith("inputs.") and isinstance(value, list):
        return ",".join(str(one) for one in value)
    cls = _spec(parent)
    if cls is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        kind = field_types(cls)[last]
        allowed = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        if str in allowed and not {int, float} & set(allowed):
            return line.text.partition("=")[2]
    return value


def _set(
    parent: DictConfig | ListConfig, last: str, value: Any, absolute: str, line: Line, mistakes: list[Mistake]
) -> None:
    typing_ = Typing({absolute: line.source})
    cls = _spec(parent)
    if isinstance(parent, DictConfig) and cls is not None:
        typing_.set_field(parent, cls, last, value, absolute)
    else:
        if isinstance(parent, DictConfig) and _holds_specs(parent):
            current = parent._get_node(last, validate_access=False)
            kind = _spec(current) if isinstance(current, DictConfig) else None
            value = typing_.node(value, kind or parent._metadata.element_type, absolute)
        try:
            with open_dict(parent):
                if isinstance(parent, ListConfig):
                    parent[int(last)] = value
                else:
                    parent[last] = value
        except OmegaConfBaseException as error:
            typing_.wrong(
                absolute, f"{value!r} does not fit: {str(error).splitlines()[0]}", "give a value of its type"
            )
    mistakes += typing_.mistakes
