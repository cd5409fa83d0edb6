"""Where artifacts and runs are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmexp.config.spec import Mistake, Spec, setting


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

    def check(self) -> Iterator[Mistake]:
        """A folder to write into, and at least one store, none named twice."""
        if not self.outputs:  # as an unset variable of the shell gives it: the stores would lie in /
            yield Mistake("outputs", "is empty", "name a folder, such as outputs")
        for key, folder in (("outputs", self.outputs), *(("store", root) for root in self.store)):
            if folder and os.path.exists(folder) and not os.path.isdir(folder):
                yield Mistake(key, f"{folder} is no folder", "name a folder, which is made if need be")
        if not self.store:
            yield Mistake("store", "is empty: there is nowhere to write", "name at least one folder")
        twice = sorted({root for root in self.store if self.store.count(root) > 1})
        if twice:
            yield Mistake("store", f"names {', '.join(twice)} more than once", "name each store once")
