"""Stores in a temporary folder, and builders in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import llmexp
from llmexp.store.artifact import Artifact
from llmexp.store.store import Store

BUILDER = Path(__file__).with_name("builder.py")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store whose leases last one second."""
    return Store([tmp_path / "store"], lease_seconds=1.0)


@pytest.fixture
def put(store: Store) -> Callable[..., Artifact]:
    """Publish an artifact of one file: ``put(fingerprint, kind=, inputs=, content=, to=)``."""

    def put_one(
        fingerprint: str,
        *,
        kind: str = "corpus",
        inputs: dict | None = None,
        content: bytes = b"text",
        to: Store | None = None,
    ) -> Artifact:
        with (to or store).build(kind, fingerprint, stage="collect", config={}, inputs=inputs) as build:
            (build.out / "data.txt").write_bytes(content)
            return build.publish()

    return put_one


@pytest.fixture
def start_builder(store: Store) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start ``builder.py`` on the store; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen] = []
    package = str(Path(llmexp.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}

    def start(fingerprint: str, run_id: str, *options: object) -> subprocess.Popen:
        command = [sys.executable, str(BUILDER), str(store.root), fingerprint, run_id, *map(str, options)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
