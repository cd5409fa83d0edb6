"""The YAML files of the config tree: their content, their names in messages, and what none may hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import IConfigRepository
from omegaconf import DictConfig
from yaml import MarkedYAMLError

from llmexp.config.lines import HYDRA_KEYS, is_settable
from llmexp.config.spec import Mistake
from llmexp.config.typed import leaves

ROOT = "config"
"""Name of the primary config."""

DEFAULT_PIPELINE = "default_pipeline"
"""Key of a stage's file: the pipeline that makes what nobody gave. Like ``defaults`` it is no setting."""


def raw(repo: IConfigRepository, path: str) -> Any:
    """The content of a file of the tree that is known to exist, as it is written."""
    loaded = repo.load_config(path)
    assert loaded is not None, path
    return loaded.config


def file_name(repo: IConfigRepository, path: str) -> str:
    """The file of the tree that ``path`` (``model/tiny``) means, as a person finds it."""
    loaded = repo.load_config(path)
    base = str(loaded.path if loaded is not None else "").removeprefix("file://")
    file = Path(base) if base.endswith((".yaml", ".yml")) else Path(base) / f"{path}.yaml"
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def is_hydras(path: str) -> bool:
    """Whether a path of the tree lies in Hydra's own part."""
    return path.startswith("hydra/")


def refused_hydra_file(repo: IConfigRepository, path: str) -> Iterator[Mistake]:
    """A file of a person's tree in Hydra's own part: it could name any callable."""
    loaded = repo.load_config(path)
    if loaded is not None and loaded.provider not in ("hydra", "llmexp"):
        name = file_name(repo, path)
        remedy = "take it away; settable, in any other file: " + ", ".join(HYDRA_KEYS)
        yield Mistake(
            path.replace("/", "."), "a config tree may hold no options of Hydra's own", remedy, name
        )


def unreadable(error: Exception) -> Mistake:
    """A file of the tree that cannot be read or merged, as a mistake."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark
        where = f"{Path(mark.name)}, line {mark.line + 1}" if mark is not None else ""
        return Mistake(
            "", f"this is not YAML: {error.problem}", "correct this line, or the one before", where
        )
    if isinstance(error, UnicodeDecodeError):
        return Mistake("", f"a file of the config tree is not UTF-8: {error}", "save it as UTF-8")
    told = " ".join(str(error).split()) or type(error).__name__
    return Mistake(
        "", told, "correct the file that is named; llmexp config lists groups and options", "a file"
    )


def refused_hydra_keys(config: Any, name: str) -> Iterator[Mistake]:
    """What a file of the tree sets of Hydra's own node and may not; it is taken out of ``config``."""
    node = config.get("hydra") if isinstance(config, DictConfig) else None
    if node is None:
        return
    found = [path for _, _, path in leaves(node, "hydra")] if isinstance(node, DictConfig) else ["hydra"]
    for path in found:
        if is_settable(path):
            continue
        remedy = "settable: " + ", ".join(HYDRA_KEYS)
        yield Mistake(path, "this part of Hydra's configuration cannot be set", remedy, name)
        config.pop("hydra", None)


def drop_nested_defaults(config: Any) -> None:
    """Remove ``defaults`` lists below the top, which a file loaded as data may hold."""
    for key in list(config.keys()) if isinstance(config, DictConfig) else ():
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_missing() and not node._is_none():
            node.pop("defaults", None)
            drop_nested_defaults(node)
