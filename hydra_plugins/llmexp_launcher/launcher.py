"""The launcher that the root config fixes for ``-m``. Light: Hydra imports this at every start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class LauncherConf:
    """Hydra's node for the launcher; what can be chosen is in the ``launcher`` group."""

    _target_: str = "hydra_plugins.llmexp_launcher.launcher.LlmexpLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="llmexp", node=LauncherConf, provider="llmexp")


class LlmexpLauncher(Launcher):  # type: ignore[misc]
    """Runs each job of a sweep in a process of its own, one after the other."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra gives."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs; a failed one does not stop the others."""
        from hydra_plugins.llmexp_launcher._core import launch

        result: Any = launch(self, job_overrides, initial_job_idx)
        return result  # type: ignore[no-any-return]
