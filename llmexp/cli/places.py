"""Where runs and artifacts are, for the verbs that look at them, and what a person's reference means."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from llmexp.config.mistakes import UserError
from llmexp.stage.runs import find_part, find_run, name_of
from llmexp.store.config import PathsSpec
from llmexp.store.store import Store

RUNS = "runs"


@dataclass(frozen=True)
class Places:
    """The folders that a command looks into."""

    outputs: Path
    store: Store

    @property
    def runs(self) -> Path:
        """Folder of the runs."""
        return self.outputs / RUNS


def verb_parser(verb: str, about: str, examples: str) -> argparse.ArgumentParser:
    """A parser for a verb that looks at what is there: ``--outputs``, ``--store`` and ``--json``."""
    made = argparse.ArgumentParser(
        prog=f"llmexp {verb}",
        description=about,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_places(made)
    made.add_argument("--json", action="store_true", help="as JSON, with stable keys")
    return made


def add_places(made: argparse.ArgumentParser) -> None:
    """Add the flags that say where runs and artifacts are."""
    made.add_argument(
        "--outputs",
        metavar="DIR",
        default=PathsSpec().outputs,
        help="the folder that paths.outputs named (default: %(default)s)",
    )
    made.add_argument(
        "--store",
        metavar="DIR",
        action="append",
        help="the store that paths.store named (default: OUTPUTS/store); again for more",
    )


def places_of(given: argparse.Namespace) -> Places:
    """The places that a command line named.

    Raises:
        UserError: a folder was named that does not exist.
    """
    outputs = Path(given.outputs).expanduser()
    if given.outputs != PathsSpec().outputs and not outputs.is_dir():
        raise UserError(f"--outputs {given.outputs}: there is no such folder")
    roots = [Path(root).expanduser() for root in given.store or [outputs / "store"]]
    missing = [str(root) for root in roots if given.store and not root.is_dir()]
    if missing:
        raise UserError(f"--store {missing[0]}: there is no such folder")
    return Places(outputs, Store(roots))


def run_name(run_dir: Path, places: Places) -> str:
    """What a person types to mean a run."""
    return name_of(run_dir, places.runs)


def the_run(reference: str, places: Places) -> Path:
    """The run folder that a person means: ``last``, a path, the name that ``status`` shows or a part of it.

    Raises:
        UserError: none, or several, are meant.
    """
    return find_run(reference, places.runs)


def run_and_stage(reference: str, places: Places) -> tuple[Path, str | None]:
    """(run folder, stage or None) that ``RUN`` or ``RUN/STAGE`` means.

    Raises:
        UserError: there is no such run, or the run has no such stage.
    """
    return find_part(reference, places.runs)
