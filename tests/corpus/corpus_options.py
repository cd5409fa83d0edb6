"""The options of the data and curation groups as specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import llmexp.corpus.config as config

CONF = Path(__file__).parents[2] / "conf"


def option(group: str, name: str, **values: Any) -> Any:
    """The spec of an option's YAML, with some values set."""

    def typed(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        fields = {key: typed(value) for key, value in node.items() if key != "_target_"}
        if "_target_" not in node:
            return fields
        return getattr(config, node["_target_"].rpartition(".")[2])(**fields)

    return typed({**yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), **values})
