"""The mesh and the processes that were started must agree."""

import pytest
import torch

from llmexp.parallel.config import ParallelSpec
from llmexp.parallel.gradients import _buckets
from llmexp.parallel.mesh import Mesh, MeshMistake, connect, device_kind

STARTED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def started(monkeypatch):
    """Sets a variable that a launcher sets; at first none of them is."""
    for name in STARTED:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


@pytest.mark.usefixtures("started")
def test_one_process_needs_no_launcher():
    assert connect(dp_replicate=1) == Mesh()


@pytest.mark.usefixtures("started")
def test_minus_one_is_all_processes_there_are():
    assert connect(dp_replicate=-1).size == 1


@pytest.mark.parametrize("axis,world", [(2, 1), (1, 2), (3, 16)])
def test_a_product_that_is_not_the_world_is_a_mistake_with_both_numbers(started, axis, world):
    started("WORLD_SIZE", str(world))
    with pytest.raises(MeshMistake, match=rf"dp_replicate={axis}, .*but {world} were started") as caught:
        connect(dp_replicate=axis)
    assert caught.value.exit_code == 2
    (mistake,) = ParallelSpec(dp_replicate=axis).check_world(world)
    assert mistake.path == "dp_replicate"


def test_variables_that_a_launcher_forgot_are_named(started):
    started("WORLD_SIZE", "2")
    started("RANK", "0")
    with pytest.raises(MeshMistake, match="LOCAL_RANK, MASTER_ADDR, MASTER_PORT not set"):
        connect(dp_replicate=2)


def test_an_axis_of_0_is_a_mistake():
    assert [m.path for m in ParallelSpec(dp_replicate=0).check()] == ["dp_replicate"]


def test_a_device_that_is_not_there_is_a_mistake_that_says_what_is():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(MeshMistake, match="it finds: cpu"):
        device_kind("cuda")


def test_buckets_hold_every_parameter_once_from_the_last_and_within_the_limit():
    parameters = [torch.nn.Parameter(torch.empty(n)) for n in (3, 10, 2, 5, 40, 1)]
    buckets = _buckets(parameters, limit=48)
    assert [[p.numel() for p in bucket] for bucket in buckets] == [[1], [40], [5, 2], [10], [3]]
