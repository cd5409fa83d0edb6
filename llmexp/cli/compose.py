"""From a command line to a composition, for every verb that takes overrides."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra.core.global_hydra
import hydra.version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.types import RunMode
from omegaconf import DictConfig

import llmexp
from llmexp.config.files import ROOT
from llmexp.config.loader import SpecLoader
from llmexp.config.mistakes import UserError
from llmexp.config.spec import Mistake


def conf_folder() -> Path:
    """The config tree: inside the wheel, or beside the package in a checkout."""
    package = Path(llmexp.__file__).resolve().parent
    shipped = package / "_conf"
    return shipped if shipped.is_dir() else package.parent / "conf"


def parser(verb: str, about: str, examples: str) -> argparse.ArgumentParser:
    """A parser for a verb that takes overrides."""
    made = argparse.ArgumentParser(
        prog=f"llmexp {verb}",
        description=about,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "overrides", nargs="*", help="key=value, group=option, +key=value, ~key, stage.key=value"
    )
    made.add_argument(
        "--config-dir", "-cd", action="append", default=[], help="a further config tree (may be given again)"
    )
    return made


@dataclass
class Session:
    """Hydra with the typed loader, for one command."""

    hydra: Hydra
    loader: SpecLoader

    def compose(self, overrides: list[str], run_mode: RunMode = RunMode.RUN) -> DictConfig:
        """The composed tree, Hydra's node included."""
        return self.hydra.compose_config(
            config_name=ROOT, overrides=overrides, run_mode=run_mode, with_log_configuration=False
        )


def session(
    config_dirs: list[str],
    *,
    complete: bool = True,
    to_run: bool = False,
    loader: type[SpecLoader] = SpecLoader,
) -> Session:
    """A session over the shipped tree and the person's own.

    With ``complete`` what is missing is a mistake; with ``to_run`` so is a mesh of another size than
    the launcher starts.
    """
    search_path = create_automatic_config_search_path(None, None, str(conf_folder()))
    for folder in config_dirs:
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise UserError(f"--config-dir {folder}: there is no such folder")
        _refuse_shadows(folder, path)
        search_path.prepend(
            provider="command-line", path=f"file://{path}", anchor=SearchPathQuery(provider="schema")
        )
    hydra.version.setbase("1.3")
    loads = loader(search_path, validate=_validator(to_run) if complete else None)
    hydra.core.global_hydra.GlobalHydra.instance().clear()
    made = Hydra(task_name="llmexp", config_loader=loads)
    hydra.core.global_hydra.GlobalHydra.instance().initialize(made)
    return Session(made, loads)


def _refuse_shadows(given: str, path: Path) -> None:
    """An own option with the name of a shipped one would never be used: the shipped tree comes first."""
    shipped = conf_folder()
    if path == shipped:
        return
    files = [file.relative_to(path) for file in sorted(path.glob("*/*.yaml"))]
    hidden = [str(file) for file in files if (shipped / file).is_file()]
    if hidden:
        names = ", ".join(hidden[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")
        raise UserError(f"--config-dir {given}: {names}: options of these names exist already; rename yours")


def _validator(to_run: bool) -> Callable[[DictConfig, dict[str, str]], list[Mistake]]:
    from llmexp.stage.graph import mistakes_of

    return functools.partial(mistakes_of, to_run=to_run)


def compose(overrides: list[str], config_dirs: list[str]) -> tuple[Any, DictConfig]:
    """(composition, tree) of a single run.

    Raises:
        CompositionError: with all mistakes.
    """
    from llmexp.stage.graph import composition_of

    opened = session(config_dirs)
    cfg = opened.compose(overrides)
    return composition_of(cfg, opened.loader.sources), cfg
