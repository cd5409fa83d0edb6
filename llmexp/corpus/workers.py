"""An ordered, bounded map over processes: the same results whatever the number of workers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_AHEAD = 2
"""Items a worker has waiting: enough to keep it busy, few enough to keep memory bounded."""

_LOOK_SECONDS = 0.5
"""Between two looks at whether the parent lives."""


class Workers:
    """Processes that map a function over a stream; with one worker, this process itself.

    Args:
        count: how many.
        begin, arguments: called once in each, before anything else.
    """

    def __init__(self, count: int, begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        if count > 1:
            # A fork would copy the locks of this process' threads (delivery, progress) as they are.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(count, context, _begin, (os.getpid(), begin, arguments))
        else:
            begin(*arguments)

    def map(self, function: Callable[[T], T], items: Iterable[T]) -> Iterator[T]:
        """``function`` of each item, in order; few items are in memory.

        Raises:
            RuntimeError: a worker process was killed. What ``begin`` or ``function`` raises comes as it is.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        running: deque[Future[T]] = deque()
        try:
            for item in items:
                with _deaf_children():
                    running.append(self._pool.submit(_call, function, item))
                if len(running) >= self._count * _AHEAD:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                f"one of {self._count} worker processes ended without a word. Most often the system kills it "
                "because memory runs out: set workers to a smaller number. If it wrote an error before it "
                "ended, that is the cause"
            ) from error

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started within do not hear Ctrl-C, from their first moment on.

    It reaches the whole group, also a worker that still imports and has not come to ``_begin``. A child
    inherits the blocked signal; for this process it only waits until the block is lifted.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches the whole group; the parent decides, and shuts the pool down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    try:
        begin(*arguments)
    except Exception as error:
        # Out of an initializer it would be told as a process that was killed, and its words be lost.
        _failed.append(error)


_failed: list[Exception] = []
"""What kept this worker from beginning; told in place of its first result."""


def _call(function: Callable[[T], T], item: T) -> T:
    if _failed:
        raise _failed[0]
    return function(item)


def _end_with_parent(parent: int) -> None:
    """A killed parent cannot tell its workers to end: they notice that another process adopted them."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
