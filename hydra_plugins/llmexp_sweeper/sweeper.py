"""The sweeper that the root config fixes for ``-m``: every combination, through our launcher."""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore


@dataclass
class SweeperConf:
    """Hydra's node for the sweeper; what can be chosen is in the ``sweep`` group."""

    _target_: str = "hydra_plugins.llmexp_sweeper.sweeper.LlmexpSweeper"


ConfigStore.instance().store(group="hydra/sweeper", name="llmexp", node=SweeperConf, provider="llmexp")


class LlmexpSweeper(BasicSweeper):  # type: ignore[misc]
    """Every combination of the swept values, in one batch."""

    def __init__(self) -> None:
        super().__init__(max_batch_size=None)

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """The launcher composes all jobs before the first, and reports the mistakes of all."""
        del batch
