"""Two real processes over gloo train as one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "train"))

import tiny_training as tiny  # noqa: E402

RANKS = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each of two ranks told, started as a launcher does."""
    folder = tmp_path_factory.mktemp("replicas")
    env = os.environ | {
        "PYTHONPATH": str(HERE.parents[1]),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "replica.py"), str(folder), "6"],
            env=env | {"RANK": str(r), "LOCAL_RANK": str(r)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(RANKS)
    ]
    errors = [process.communicate(timeout=240)[1] for process in started]
    assert [process.returncode for process in started] == [0] * RANKS, errors
    return [json.loads((folder / f"told-{r}.json").read_text()) for r in range(RANKS)]


@pytest.mark.parametrize("key", ["losses", "norms"])
def test_two_ranks_have_the_losses_and_norms_of_one(told, tmp_path, key):
    one = tiny.Recorder()
    tiny.train(tmp_path, tracker=one)
    expected = one.values[{"losses": "train/loss", "norms": "train/grad_norm"}[key]]
    assert [int(step) for step in told[0][key]] == list(expected)
    assert list(told[0][key].values()) == pytest.approx(list(expected.values()), abs=1e-6)


def test_two_ranks_end_with_equal_weights(told):
    assert told[0]["hash"] == told[1]["hash"]


def test_a_stop_asked_of_one_rank_stops_both_at_the_same_step(told):
    assert all("stopped after step 6, saved as" in each["interrupted"] for each in told)


def test_only_the_first_rank_logs(told):
    assert told[1]["losses"] == {}
