"""The mesh of processes, as configured. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from llmexp.config.spec import Mistake, Spec, setting


@dataclass(kw_only=True)
class ParallelSpec(Spec):
    """How many processes train together, and what each of them holds.

    The product of the axes is the number of processes. None of it can change what is trained:
    the loss is averaged over the global batch however that is cut.
    """

    builds: ClassVar[str] = "llmexp.parallel.mesh:connect"

    dp_replicate: int = setting(
        "Processes that hold the whole model and see a share of each global batch; -1: all there are.",
        default=1,
        unit="processes",
        ge=-1,
        result=False,
    )

    def check(self) -> Iterator[Mistake]:
        """An axis has a size, or is what is left."""
        if self.dp_replicate == 0:
            yield Mistake("dp_replicate", "is 0: some process must train", "give 1 or more, or -1 for all")

    def size(self, world_size: int | None = None) -> int:
        """Processes of the mesh; with -1 the ``world_size``, or 1 where that is not known yet."""
        return self.dp_replicate if self.dp_replicate > 0 else (world_size or 1)

    def check_world(self, world_size: int) -> Iterator[Mistake]:
        """The mesh must take up exactly the processes that will be started."""
        if self.size(world_size) != world_size:
            yield Mistake(
                "dp_replicate",
                f"is {self.dp_replicate}, a mesh of as many processes, but {world_size} are started",
                f"set parallel.dp_replicate={world_size} or -1, or start {self.dp_replicate} processes",
            )
