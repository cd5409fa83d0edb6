"""The options of the data and curation groups as specs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).parents[2] / "conf"


def option(group: str, name: str, **values: Any) -> Any:
    """The spec of an option's YAML, with some values set."""

    def typed(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        fields = {key: typed(value) for key, value in node.items() if key != "_target_"}
        if "_target_" not in node:
            return fields
        module, _, name = node["_target_"].rpartition(".")
        return getattr(importlib.import_module(module), name)(**fields)

    return typed({**yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), **values})
