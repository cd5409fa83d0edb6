"""Specs of the launcher group. None of their values can change what a stage produces."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.config.spec import Spec, setting


@dataclass(kw_only=True)
class LauncherSpec(Spec):
    """Where stages run."""

    dry_run: bool = setting("Show what would run, and run nothing.", default=False, result=False)

    def processes(self) -> int:
        """Processes that train together."""
        return 1


@dataclass(kw_only=True)
class LocalSpec(LauncherSpec):
    """In the process of the command."""


@dataclass(kw_only=True)
class ProcessesSpec(LauncherSpec):
    """Training stages in several processes of this machine, one a device (or a CPU process)."""

    gpus_per_node: int = setting("Processes.", default=2, ge=1, result=False)

    def processes(self) -> int:
        """Processes that train together."""
        return self.gpus_per_node
