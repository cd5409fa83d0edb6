"""What each kind of error means for the person at the keyboard."""

from __future__ import annotations

from llmexp.corpus.faults import BadData
from llmexp.launch.mistakes import is_mistake
from llmexp.store.errors import StoreFull, no_room
from llmexp.track.progress import Interrupted


def code_and_text(error: BaseException) -> tuple[int, str]:
    """Exit code and words for an error that ended a command."""
    if is_mistake(error):
        return 2, str(error)
    if isinstance(error, Interrupted):
        return 130, f"interrupted: {error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted at once; the last checkpoint stands. The same command goes on from it."
    if isinstance(error, BadData):  # told by what was wrong with the data, whichever code found it
        return 1, str(error)
    if not isinstance(error, StoreFull) and (reason := no_room(error)):
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        return 1, (
            f"{where}{reason}. A run writes to paths.outputs, a proof to TMPDIR; what was saved stays, and "
            "a run goes on from it with the same command"
        )
    return 1, f"{type(error).__name__}: {error}\n(run again with --traceback for the whole trace)"
