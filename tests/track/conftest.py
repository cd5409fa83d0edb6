"""A real MLflow server, and what the tracking tests share."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmexp.track.config import MlflowSpec

sys.path.insert(0, str(Path(__file__).parent))  # the parts beside the tests are modules for them too

QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MlflowServer:
    """`mlflow server` over SQLite, that can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        arguments += ["--backend-store-uri", f"sqlite:///{self.folder / 'server.db'}"]
        arguments += ["--artifacts-destination", str(self.folder / "server-artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", *arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, **QUIET},
                start_new_session=True,
                cwd=self.folder,
            )
        wait_for(self._answers, 180, "the MLflow server did not come up")

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False


def wait_for(condition: Callable[[], bool], seconds: float, problem: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(problem)
        time.sleep(0.1)


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """A server that stays up, unless a test kills it, which then starts it again."""
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def dead_uri() -> str:
    """An address where nothing answers."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="session")
def client(mlflow_server: MlflowServer):
    """A client of the server, for looking at what arrived."""
    os.environ.update(QUIET)
    from mlflow import MlflowClient

    return MlflowClient(mlflow_server.uri)


@pytest.fixture(scope="session")
def mlflow_spec(mlflow_server: MlflowServer) -> MlflowSpec:
    """Tracking at the server, without system metrics, waiting for what is delivered at the end."""
    return MlflowSpec(
        uri=mlflow_server.uri, experiment="tests", system_every=0.0, close_wait=30.0, linger=20.0
    )
