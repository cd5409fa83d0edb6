"""Shell completion: Hydra's own, over the keys and groups of the stages as a person writes them."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from llmexp.cli.compose import session
from llmexp.cli.main import VERBS
from llmexp.config.files import ROOT
from llmexp.config.loader import SpecLoader

TAKES_VALUE = ("--config-dir", "-cd")


class CompletionLoader(SpecLoader):
    """Composes what is typed so far, mistakes and all, into one tree with every key that a line may name."""

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Root keys, the keys of all stages, and each stage under its name."""
        del run_mode  # a sweep is no mistake here, and nothing needs to be complete
        cfg = OmegaConf.create({})
        # A line that is wrong must not take completion away: it is left out.
        for lines in (overrides, []):
            try:
                cfg = super().load_configuration(
                    config_name, lines, RunMode.MULTIRUN, from_shell, validate_sweep_overrides
                )
                break
            except HydraException:
                continue
        return _flat(cfg)

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
    stages = {str(name): _plain(stage) for name, stage in (cfg.get("stages") or {}).items()}
    flat: dict[str, Any] = {}
    for stage in stages.values():
        flat = stage | flat
    roots = {
        str(key): _plain(cfg._get_node(key)) for key in cfg if key not in ("stages", "hydra", "_target_")
    }
    return OmegaConf.create(flat | roots | stages, flags={"allow_objects": True})


def _plain(node: Any) -> Any:
    """A node as plain data, without the names of specs, which no line may change."""
    data = OmegaConf.to_container(node, resolve=False) if OmegaConf.is_config(node) else node
    return _without_targets(data)


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
    opened.hydra.shell_completion(ROOT, [f"query={shell}"])


def _words(line: str) -> list[str]:
    """The words after the program's name; the last one is empty after a space."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is still open
        words = line.split()
    return [*words[1:], *([""] if line.endswith(" ") else [])]
