"""What each kind of error means for the person at the keyboard."""

from __future__ import annotations

import errno

from llmexp.launch.mistakes import is_mistake
from llmexp.track.progress import Interrupted

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""The disk takes no more, or takes nothing: no fault of llmexp's."""


def code_and_text(error: BaseException) -> tuple[int, str]:
    """Exit code and words for an error that ended a command."""
    if is_mistake(error):
        return 2, str(error)
    if isinstance(error, Interrupted):
        return 130, f"interrupted: {error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted at once; the last checkpoint stands. The same command goes on from it."
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where = f"{error.filename}: " if error.filename else ""
        return 1, (
            f"{where}{error.strerror}. paths.outputs names the folder that is written to; what was saved "
            "stays, and the same command goes on from it"
        )
    return 1, f"{type(error).__name__}: {error}\n(run again with --traceback for the whole trace)"
