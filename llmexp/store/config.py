"""Where artifacts and runs are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmexp.config.spec import Mistake, Spec, setting


def nearest_existing(path: str) -> Path:
    """What is there of a path: itself, or the nearest thing above it."""
    whole = Path(path).absolute()
    return next(place for place in (whole, *whole.parents) if os.path.lexists(place))


@dataclass(kw_only=True)
class PathsSpec(Spec):
    """The folders that llmexp writes. None of them can change what a stage produces."""

    outputs: str = setting(
        "Folder of everything that llmexp writes: store, runs, sweeps, tracking database.",
        default="outputs",
        result=False,
    )
    store: list[str] = setting(
        "Artifact stores: the first is written, the rest (a team's, say) are only read.",
        default=["outputs/store"],
        result=False,
    )

    @property
    def roots(self) -> list[Path]:
        """The stores' folders, the one that is written first."""
        return [Path(root) for root in self.store]

    @property
    def runs(self) -> Path:
        """The folder of all runs."""
        return Path(self.outputs) / "runs"

    def closed(self) -> str | None:
        """What a run would write to and may not, with its key; None when all is well."""
        for key, folder in (("paths.outputs", self.outputs), ("paths.store", self.store[0])):
            place = nearest_existing(folder)
            if not os.access(place, os.W_OK | os.X_OK):
                return f"{key}={folder}: {place} may not be written to: name a folder that may"
        return None

    def check(self) -> Iterator[Mistake]:
        """A folder to write into, and at least one store, none named twice."""
        if not self.outputs:  # as an unset variable of the shell gives it: the stores would lie in /
            yield Mistake("outputs", "is empty", "name a folder, such as outputs")
        told: set[str | Path] = set()  # of the default store, which lies in outputs, nothing is told twice
        for key, folder in (("outputs", self.outputs), *(("store", root) for root in self.store)):
            place = nearest_existing(folder)
            if not place.is_dir() and place not in told:
                told.add(place)
                yield Mistake(key, f"{place} is no folder", "name a folder, which is made if need be")
            if folder.startswith("~") and "~" not in told:
                told.add("~")
                whole = os.path.expanduser(folder)
                yield Mistake(key, f"{folder}: no shell puts a home folder for ~ here", f"write {whole}")
        if not self.store:
            yield Mistake("store", "is empty: there is nowhere to write", "name at least one folder")
        twice = sorted({root for root in self.store if self.store.count(root) > 1})
        if twice:
            yield Mistake("store", f"names {', '.join(twice)} more than once", "name each store once")
