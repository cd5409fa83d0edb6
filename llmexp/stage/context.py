"""What a stage is given when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from llmexp.plan.config import HardwareSpec
from llmexp.store.artifact import Artifact
from llmexp.store.fingerprint import ContentHasher
from llmexp.store.store import Store
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker


@dataclass(frozen=True)
class External:
    """An input from outside the store: a folder that a person named, known by its content."""

    kind: str
    fingerprint: str
    path: Path

    @classmethod
    def at(cls, kind: str, path: Path, hasher: ContentHasher) -> External:
        """The folder at ``path``; its fingerprint is the hash of its files."""
        return cls(kind, hasher.content_hash(path)[:32], path)


Input = Artifact | External


@dataclass(kw_only=True)
class Context:
    """The run folder, the inputs, and how to report, to stop and to write.

    ``out`` becomes the artifact; ``run_dir`` outlives a crash and is where a stage goes on from.
    """

    name: str
    out: Path
    run_dir: Path
    inputs: dict[str, Input | dict[str, Input]] = field(default_factory=dict)
    tracker: Tracker
    progress: Progress
    should_stop: Callable[[], bool]
    guard: Callable[[], None]
    hardware: HardwareSpec
    store: Store
    rank: int = 0
    world: int = 1

    def path(self, need: str) -> Path:
        """The folder of a single input."""
        (found,) = self.paths(need).values()
        return found

    def paths(self, need: str) -> dict[str, Path]:
        """The folders of an input that may be several, by name.

        Raises:
            Damaged: a file of an artifact is not what its builder wrote. One rank looks for all.
        """
        found = self.inputs[need]
        named = found if isinstance(found, dict) else {need: found}
        return {
            name: one.folder() if isinstance(one, Artifact) and self.rank == 0 else one.path
            for name, one in named.items()
        }

    def optional_path(self, need: str) -> Path | None:
        """The folder of an input that may be missing."""
        return self.path(need) if need in self.inputs else None
