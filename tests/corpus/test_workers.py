"""Worker processes: order, and what is told when one of them fails."""

from __future__ import annotations

import os
import signal

import pytest

from llmexp.corpus.workers import Workers


def nothing() -> None:
    """A worker needs nothing."""


def refuse(what: str) -> None:
    """A worker that cannot begin."""
    raise LookupError(f"no {what}")


def doubled(number: int) -> int:
    return 2 * number


def killed(_number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.parametrize("count", [1, 2])
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    with Workers(count, nothing, ()) as pool:
        assert list(pool.map(doubled, range(20))) == [2 * k for k in range(20)]


def test_what_kept_a_worker_from_beginning_is_told_as_it_is() -> None:
    with Workers(2, refuse, ("tokenizer",)) as pool, pytest.raises(LookupError, match="no tokenizer"):
        list(pool.map(doubled, range(4)))


def test_a_killed_worker_is_told_with_what_to_do() -> None:
    with (
        Workers(2, nothing, ()) as pool,
        pytest.raises(RuntimeError, match="set workers to a smaller number"),
    ):
        list(pool.map(killed, range(4)))
