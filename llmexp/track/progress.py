"""Progress for people: live lines on a terminal, plain lines every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self, TextIO, cast

INTERVAL = 5.0
"""Seconds between two plain lines of one task."""


WIDE = 120
"""Columns of a terminal that has room for a bar."""

STAGES = "stages"
"""Unit of the pipeline's own task."""


class Interrupted(Exception):
    """A run stopped at a boundary because a person or the scheduler asked; its work is saved.

    The message says how to go on.
    """


class Task:
    """One thing that is being done, ``completed`` of ``total`` units."""

    def __init__(self, display: Display, description: str, total: float | None, unit: str) -> None:
        self.description = description
        self.total = total
        self.unit = unit
        self.completed = 0.0
        self.fields: dict[str, Any] = {}
        self.started = time.monotonic()
        self._first: tuple[float, float] | None = None
        self._display = display

    def update(self, completed: float, **fields: Any) -> None:
        """Set how much is done; ``fields`` (loss, tokens_per_second, mfu, …) are shown beside it."""
        if self._first is None:  # a resumed task does not begin at 0, and its rate must not count that
            self._first = (self.started, completed) if completed <= 1 else (time.monotonic(), completed)
        self.completed = completed
        self.fields.update(fields)
        self._display.changed(self)

    def advance(self, n: float = 1, **fields: Any) -> None:
        """Count ``n`` more units as done."""
        if self._first is None:
            self._first = (self.started, self.completed)
        self.completed += n
        self.fields.update(fields)
        self._display.changed(self)

    def left(self) -> float | None:
        """Seconds left at the rate so far, or None while it is unknown."""
        if self.total is None or self._first is None:
            return None
        seconds, done = time.monotonic() - self._first[0], self.completed - self._first[1]
        if done <= 0 or seconds <= 0:
            return None
        return max(0.0, (self.total - self.completed) * seconds / done)

    def figures(self) -> str:
        """The fields as people read them: ``loss 2.310 · 12.3k tokens/s · MFU 41 %``."""
        return " · ".join(_figure(key, value) for key, value in self.fields.items())

    def count(self) -> str:
        """``120/400 steps`` or, without a total, ``120 steps``."""
        done = short(self.completed)
        return f"{done}/{short(self.total)} {self.unit}" if self.total is not None else f"{done} {self.unit}"


class Display(Protocol):
    """Where tasks are shown."""

    def begin(self, task: Task) -> None:
        """A task begins."""

    def changed(self, task: Task) -> None:
        """A task has moved on; called often."""

    def end(self, task: Task) -> None:
        """A task is over."""

    def line(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """Give the terminal back."""


class Quiet:
    """Shows nothing."""

    def begin(self, task: Task) -> None:
        """Nothing to show."""

    def changed(self, task: Task) -> None:
        """Nothing to show."""

    def end(self, task: Task) -> None:
        """Nothing to show."""

    def line(self, text: str) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to give back."""


class Lasting:
    """A stream whose reader may leave (``| head``, a lost terminal): what is written then is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if anybody is there."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written, if anybody is there."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Plain:
    """Lines for logs and pipes: one at a task's begin and end, and one every few seconds between."""

    def __init__(self, stream: Lasting, interval: float) -> None:
        self._stream = stream
        self._interval = interval
        self._shown: dict[int, float] = {}
        self._lock = threading.Lock()

    def begin(self, task: Task) -> None:
        """The first line comes with the first progress after the interval."""
        self._shown[id(task)] = time.monotonic()

    def changed(self, task: Task) -> None:
        """A line, when the last one is long enough ago."""
        now = time.monotonic()
        if now - self._shown.get(id(task), now) >= self._interval:
            self._shown[id(task)] = now
            left = task.left()
            self._show(task, f"{clock(left)} left" if left is not None else "")

    def end(self, task: Task) -> None:
        """The last state and the time it took; nothing for the pipeline's line, whose stages were told."""
        self._shown.pop(id(task), None)
        if task.unit != STAGES:
            self._show(task, f"in {clock(time.monotonic() - task.started)}")

    def line(self, text: str) -> None:
        """The line."""
        with self._lock:
            self._stream.write(text + "\n")
            self._stream.flush()

    def close(self) -> None:
        """The stream belongs to the caller."""

    def _show(self, task: Task, end: str) -> None:
        parts = (f"{task.description}: {task.count()}", task.figures(), end)
        self.line(" · ".join(part for part in parts if part))


class Live:
    """Lines that rich keeps up to date on a terminal."""

    def __init__(self, stream: Lasting) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        console = Console(file=cast(TextIO, stream))
        bar = [BarColumn(bar_width=24)] if console.width >= WIDE else []
        # One column: what does not fit is cut at its end, where the figures are, and not in each part.
        text = TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._rich = RichProgress(*bar, text, console=console, refresh_per_second=4)
        self._ids: dict[int, Any] = {}
        self._drawn: dict[int, float] = {}
        self._rich.start()

    def begin(self, task: Task) -> None:
        """A new line."""
        self._ids[id(task)] = self._rich.add_task("", total=task.total, text=_live(task))

    def changed(self, task: Task) -> None:
        """The task's line, at most ten times a second: steps may be faster than the screen."""
        now = time.monotonic()
        if now - self._drawn.get(id(task), 0.0) >= 0.1:
            self._drawn[id(task)] = now
            self._rich.update(self._ids[id(task)], completed=task.completed, text=_live(task))

    def end(self, task: Task) -> None:
        """The live line goes, a plain one with the final figures stays; none of the pipeline's line."""
        self._rich.remove_task(self._ids.pop(id(task)))
        self._drawn.pop(id(task), None)
        if task.unit == STAGES:
            return
        parts = (task.description, task.count(), task.figures(), clock(time.monotonic() - task.started))
        self.line(" · ".join(part for part in parts if part))

    def line(self, text: str) -> None:
        """A line above the live ones."""
        self._rich.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Stop drawing."""
        self._rich.stop()


class Progress:
    """What is shown while a command runs.

    Args:
        quiet: show nothing (ranks other than 0, ``--quiet``).
        stream: where to; rich is used when it is a terminal. Default: standard error.
        interval: seconds between two plain lines of a task.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, interval: float = INTERVAL
    ) -> None:
        shown = Lasting(stream or sys.stderr)
        self._display: Display = (
            Quiet() if quiet else (Live(shown) if shown.isatty() else Plain(shown, interval))
        )

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        """Show a task while the context lasts."""
        task = Task(self._display, description, total, unit)
        self._display.begin(task)
        try:
            yield task
        finally:
            self._display.end(task)

    @contextmanager
    def stage(self, name: str, index: int, total: int) -> Iterator[Task]:
        """Show the pipeline's line: stage ``name``, the ``index``-th (from 0) of ``total``."""
        self.line(f"[{index + 1}/{total}] {name}")
        task = Task(self._display, f"stage {index + 1} of {total}: {name}", total, STAGES)
        task.completed = index
        self._display.begin(task)
        try:
            yield task
            task.completed = index + 1
        finally:
            self._display.end(task)

    def line(self, text: str) -> None:
        """Print a line that stays, without disturbing the live ones."""
        self._display.line(text)

    def close(self) -> None:
        """Give the terminal back."""
        self._display.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        self.close()


def short(number: float) -> str:
    """A number in a few characters: 950, 12.3k, 4.1M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if letter == 'k' else size):.1f}{letter}"
    return f"{number:.0f}" if float(number).is_integer() or abs(number) >= 100 else f"{number:.2f}"


def clock(seconds: float) -> str:
    """A duration: 9 s, 3:05, 2:03:05."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _figure(key: str, value: Any) -> str:
    if key == "tokens_per_second":
        return f"{short(value)} tokens/s"
    if key == "mfu":
        return f"MFU {100 * value:.0f} %"
    if isinstance(value, float):
        return f"{key} {value:.3g}" if abs(value) < 1e-2 else f"{key} {value:.3f}"
    return f"{key} {value}"


def _live(task: Task) -> str:
    """A task's line: what people look for first comes first, for a narrow terminal cuts the rest."""
    if task.unit == STAGES:
        return f"[dim]{_plain(task.description)}[/]"
    left = task.left()
    parts = (
        f"{_plain(task.description)} {task.count()}",
        f"[bold]{clock(left)} left[/]" if left is not None else "",
        f"[cyan]{_plain(task.figures())}[/]" if task.fields else "",
    )
    return " · ".join(part for part in parts if part)


def _plain(text: str) -> str:
    """Text whose brackets rich must not take for markup."""
    return text.replace("[", r"\[")
