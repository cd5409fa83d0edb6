"""What each kind of error means for the person at the keyboard."""

from __future__ import annotations

from llmexp.config.mistakes import CompositionError, UserError
from llmexp.model.families.base import ModelFolderError
from llmexp.store.errors import Ambiguous, NoArtifact
from llmexp.track.progress import Interrupted

MISTAKES: tuple[type[BaseException], ...] = (
    CompositionError,
    UserError,
    NoArtifact,
    Ambiguous,
    ModelFolderError,
)
"""A person's mistakes: exit code 2."""


def code_and_text(error: BaseException) -> tuple[int, str]:
    """Exit code and words for an error that ended a command."""
    from hydra.errors import HydraException

    if isinstance(error, MISTAKES) or getattr(error, "exit_code", None) == 2:
        return 2, str(error)
    if isinstance(error, HydraException):
        return 2, f"{error}"
    if isinstance(error, Interrupted):
        return 130, f"interrupted: {error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted at once; the last checkpoint stands. The same command goes on from it."
    return 1, f"{type(error).__name__}: {error}\n(run again with --traceback for the whole trace)"
