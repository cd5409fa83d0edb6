"""Shell completion: Hydra's own, over the keys and groups of the stages as a person writes them."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from typing import Any

from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.default_element import GroupDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from llmexp.cli.compose import session
from llmexp.cli.main import VERBS
from llmexp.config.files import ROOT
from llmexp.config.lines import EXPERIMENT, Line, parse_lines
from llmexp.config.loader import SpecLoader, lines_of
from llmexp.config.pipeline import effective_pipeline
from llmexp.config.typed import Typing, field_types

TAKES_VALUE = ("--config-dir", "-cd")


class CompletionLoader(SpecLoader):
    """Composes what is typed so far, mistakes and all, as far as one word asks.

    A shell waits for this at every tab, so at most one group of the root and one stage are composed.
    """

    asked = ""
    """What stands before the first dot of the word: a root key, a stage, or a key of some stage."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._repositories: dict[Any, Any] = {}

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Root keys, the keys of all stages, each stage under its name; below them only what is asked."""
        del config_name, run_mode, from_shell, validate_sweep_overrides  # a sweep is no mistake here
        # A line that is wrong must not take completion away: it is left out.
        for given in (overrides, []):
            with contextlib.suppress(HydraException, OmegaConfBaseException, YAMLError):
                lines = self._lines(given, RunMode.MULTIRUN, validate=False)
                cfg, repo, lines = self._with_experiment(lines, RunMode.MULTIRUN)
                self._stages(cfg, repo, [x for x in lines if not x.override.is_sweep_override()])
                return _flat(cfg)
        return OmegaConf.create({})

    def _with_experiment(
        self, lines: list[Line], run_mode: RunMode
    ) -> tuple[DictConfig, IConfigRepository, list[Line]]:
        """As for a run, but the experiment's lines are read from its file, before the root is composed."""
        names = [x.override.value() for x in lines if x.key == "experiment"]
        file = self.repository.load_config(f"experiment/{names[-1]}") if names else None
        if file is not None:
            lines = (
                parse_lines(OmegaConf.select(file.config, "overrides") or [], "", self.mistakes, EXPERIMENT)
                + lines
            )
        return *self._root(lines, run_mode), lines

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        """Once for the same words: Hydra's completion asks again for every group."""
        key = (config_name, *overrides)
        if key not in self._repositories:
            found = super()._parse_overrides_and_create_caching_repo(config_name, overrides)
            self._repositories[key] = found
        return self._repositories[key]

    def _root(self, lines: list[Line], run_mode: RunMode) -> tuple[DictConfig, IConfigRepository]:
        wanted = ("pipeline", "stage", "hydra", self.asked)
        return super()._root([x for x in lines if x.key.partition(".")[0] in wanted], run_mode)

    def _load_configuration_impl(
        self, config_name: str | None, overrides: list[str], *given: Any, **options: Any
    ) -> DictConfig:
        """As Hydra composes, without its own node and the groups that nobody asks for."""
        del given, options
        parsed, repo = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        root = repo.load_config(config_name or ROOT)
        assert root is not None
        assert root.defaults_list is not None
        root.defaults_list = [
            x
            for x in root.defaults_list
            if x.is_self() or (isinstance(x, GroupDefault) and x.group in ("pipeline", self.asked))
        ]
        own = [x for x in parsed if not x.is_hydra_override()]
        found = create_defaults_list(repo, config_name, own, prepend_hydra=False, skip_missing=True)
        merged, self.sources = self._merge(found.defaults, repo)
        merged.pop("hydra", None)
        stages = OmegaConf.select(merged, "pipeline.stages") or {}
        if self.asked in stages:
            merged.pipeline.stages = {self.asked: {**stages[self.asked], "needs": {}}}
        return Typing(self.sources).node(OmegaConf.to_container(merged, resolve=False), None, "")

    def _stages(self, cfg: DictConfig, repo: IConfigRepository, lines: list[Line]) -> None:
        """The keys of every stage; the values of the one that is asked for, or the first that has what is."""
        pipeline = effective_pipeline(self, cfg, repo, [x for x in lines if not self._is_root(x)])
        entries = pipeline.entries
        having = [
            name for name, entry in entries.items() if entry.spec and self.asked in field_types(entry.spec)
        ]
        asked = self.asked if self.asked in entries else next(iter(having), None)
        for name, entry in entries.items():
            if name == asked:
                node = self._stage(entry, repo, lines_of(entry, pipeline)).config
            elif not self.asked:
                node = OmegaConf.structured(entry.spec)
            else:
                continue
            with open_dict(cfg):
                cfg.stages[name] = node

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """Options of ``group``, also as ``stage.group``; Hydra's own groups are not offered."""
        _, _, name = group_name.rpartition(".")
        found = super().get_group_options(name, results_filter, config_name, overrides)
        return [str(one) for one in found if name or one != "hydra"]


def _flat(cfg: DictConfig) -> DictConfig:
    """The keys of all stages beside those of the root, and each stage under its name."""
    stages = {str(name): _keys(stage) for name, stage in cfg.stages.items()}
    flat: dict[str, Any] = {}
    for stage in stages.values():
        flat = stage | flat
    roots = {key: value for key, value in _keys(cfg).items() if key != "stages"}
    return OmegaConf.create(flat | roots | stages, flags={"allow_objects": True})


def _keys(node: DictConfig) -> dict[str, Any]:
    return {str(key): _plain(node._get_node(key)) for key in node if key != "_target_"}


def _plain(node: Any) -> Any:
    """A node as plain data, without the names of specs, which no line may change."""
    if not OmegaConf.is_config(node):
        return node
    return {} if node._is_missing() else _without_targets(OmegaConf.to_container(node, resolve=False))


def _without_targets(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_targets(value) for key, value in data.items() if key != "_target_"}
    return [_without_targets(one) for one in data] if isinstance(data, list) else data


def query(shell: str) -> None:
    """Print what may follow ``COMP_LINE``, a command line as the shell has it so far."""
    words = _words(os.environ.get("COMP_LINE", ""))
    last = words[-1] if words else ""
    if len(words) == 1 and last and "=" not in last:
        sys.stdout.write("".join(f"{verb}\n" for verb in VERBS if verb.startswith(last)))
    if last.startswith("-"):
        return
    if len(words) > 1 and words[0] in VERBS:
        words = words[1:]
    trees, kept = [], []
    while words:
        word = words.pop(0)
        if word in TAKES_VALUE and words:
            trees.append(words.pop(0))
        elif not word.startswith("-") and (("=" in word or word.startswith("~")) or not words):
            kept.append(word)
    os.environ["COMP_LINE"] = " ".join(["llmexp", *kept])
    opened = session(trees, complete=False, loader=CompletionLoader)
    asked, dot, _ = last.lstrip("+~").partition(".")
    assert isinstance(opened.loader, CompletionLoader)
    opened.loader.asked = asked if dot else ""
    opened.hydra.shell_completion(ROOT, [f"query={shell}"])


def _words(line: str) -> list[str]:
    """The words after the program's name; the last one is empty after a space."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is still open
        words = line.split()
    return [*words[1:], *([""] if line.endswith(" ") else [])]
