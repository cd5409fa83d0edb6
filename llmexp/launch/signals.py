"""The one owner of signals: SIGINT and SIGTERM set a flag that stages read at their boundaries."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Whether somebody asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """True once a stop was asked for."""
        return self.signal is not None


@contextmanager
def stop_on_signals(say: Callable[[str], None]) -> Iterator[StopFlag]:
    """Within the context, SIGINT and SIGTERM set the flag; a second SIGINT raises KeyboardInterrupt."""
    flag = StopFlag()

    def handle(number: int, _frame: FrameType | None) -> None:
        if flag.signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        flag.signal = number
        say(f"{signal.Signals(number).name}: stopping at the next safe point; Ctrl-C once more stops at once")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
