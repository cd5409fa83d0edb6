"""I02: ranks that belonged to no mesh failed with an index error (torchtitan PR 4258, Bagel#295)."""

from __future__ import annotations

import pytest

from llmexp.parallel.config import ParallelSpec
from llmexp.parallel.mesh import MeshMistake, connect


@pytest.mark.parametrize("axis, world", [(24, 16), (8, 16)])
def test_a_mesh_that_is_not_the_world_is_refused_with_both_numbers(
    axis: int, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mistake,) = ParallelSpec(dp_replicate=axis).check_world(world)
    assert str(axis) in mistake.problem
    assert str(world) in mistake.problem
    monkeypatch.setenv("WORLD_SIZE", str(world))
    with pytest.raises(MeshMistake, match=rf"{axis}, {axis} processes in all, but {world}") as caught:
        connect(dp_replicate=axis)
    assert caught.value.exit_code == 2


def test_minus_one_is_what_is_there() -> None:
    assert ParallelSpec(dp_replicate=-1).size(6) == 6
    assert not list(ParallelSpec(dp_replicate=-1).check_world(6))
