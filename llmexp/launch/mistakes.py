"""Which errors are a person's mistakes, in whatever process they are found."""

from __future__ import annotations

from hydra.errors import HydraException

from llmexp.config.mistakes import CompositionError, UserError
from llmexp.model.families.base import ModelFolderError
from llmexp.store.errors import Ambiguous, NoArtifact

MISTAKES: tuple[type[BaseException], ...] = (
    CompositionError,
    UserError,
    NoArtifact,
    Ambiguous,
    ModelFolderError,
    HydraException,
)


def is_mistake(error: BaseException) -> bool:
    """Whether a person can mend it: exit code 2."""
    return isinstance(error, MISTAKES) or getattr(error, "exit_code", None) == 2
