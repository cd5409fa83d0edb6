"""The one owner of signals: SIGINT and SIGTERM set a flag that stages read at their boundaries.

A handler runs between any two bytecodes of the main thread, also while that holds the lock of what
a handler would use: it only sets the flag and writes a byte to a pipe, and a thread tells people.
"""

from __future__ import annotations

import os
import signal
import threading
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
    """Within the context, SIGINT and SIGTERM set the flag; a second SIGINT raises KeyboardInterrupt.

    ``say`` is called in another thread, with what the first signal does.
    """
    flag = StopFlag()
    ear, mouth = os.pipe()

    def handle(number: int, _frame: FrameType | None) -> None:
        if flag.signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        flag.signal = number
        os.write(mouth, bytes([number]))

    def tell() -> None:
        for number in os.read(ear, 1):  # nothing once the other end is closed
            name = signal.Signals(number).name
            say(f"{name}: stopping at the next safe point; Ctrl-C once more stops at once")

    teller = threading.Thread(target=tell, name="signals", daemon=True)
    teller.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(mouth)
        teller.join()
        os.close(ear)
