"""``llmexp sync``: against a real database of MLflow."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from llmexp.track.config import JsonlSpec, MlflowSpec

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that MLflow stands on

AWAY = MlflowSpec(uri="http://127.0.0.1:9", close_wait=0.0, linger=0.0, system_every=0.0)
"""A server that is not there: nothing listens on port 9."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow; making one takes seconds."""
    from mlflow.store.db.utils import _initialize_tables
    from sqlalchemy import create_engine

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    _initialize_tables(create_engine(f"sqlite:///{file}"))
    return file


def runs_in(database: Path) -> int:
    with sqlite3.connect(database) as connection:
        return int(connection.execute("select count(*) from runs").fetchone()[0])


def test_what_a_dead_server_has_not_got_is_delivered_to_another_address(world, look, database):
    world.run(spec=AWAY)
    said = look("sync", "last", "--uri", f"sqlite:///{database}", "--json")
    assert said.code == 0
    assert [run["remaining"] for run in said.json["runs"]] == [0, 0, 0]
    assert all(run["delivered"] for run in said.json["runs"])
    assert runs_in(database) == 3
    assert (world.outputs / "mlartifacts").is_dir()  # files go where the tracking option would put them


def test_what_is_delivered_is_not_delivered_again(world, look, database):
    world.run(spec=AWAY)
    uri = f"sqlite:///{database}"
    look("sync", "--uri", uri)
    before = runs_in(database)
    assert look("sync", "--uri", uri).out.strip() == "everything is delivered"
    assert runs_in(database) == before


def test_a_server_that_is_still_away_is_named_and_the_exit_code_is_1(world, look):
    world.run(spec=AWAY)
    said = look("sync", "last/pretrain", "--json")
    assert said.code == 1
    (run,) = said.json["runs"]
    assert run["remaining"] > 0
    assert run["problem"]
    assert run["uri"] == "http://127.0.0.1:9"


def test_a_run_that_is_tracked_in_its_folder_alone_cannot_be_delivered(world, look):
    world.run(spec=JsonlSpec(system_every=0.0))
    assert look("sync").out.strip() == "everything is delivered"
    said = look("sync", "last")
    assert said.code == 2
    assert "nowhere to deliver" in said.err


def test_a_password_that_is_not_written_down_must_be_given(world, look):
    world.run(
        spec=MlflowSpec(uri="http://me:secret@127.0.0.1:9", close_wait=0.0, linger=0.0, system_every=0.0)
    )
    said = look("sync", "last/pretrain", "--json")
    assert said.code == 1
    assert "--uri" in said.json["runs"][0]["problem"]
    assert "secret" not in said.out


def test_an_address_that_the_tracker_does_not_take_is_a_mistake(world, look):
    world.run(spec=AWAY)
    said = look("sync", "last", "--uri", "mlruns")
    assert said.code == 2
    assert "neither a server nor a database" in said.err
