"""What a person finds in `mlflow ui` after a run: the pipeline, its stages under it, and their curves."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmexp.stage.reporting import next_commands

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="session")
def mlflow_ui(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of MLflow's page over the run's database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    database = f"sqlite:///{quickstart / 'outputs/mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", database, "--port", str(port)]
    said = tmp_path_factory.mktemp("mlflow") / "output.txt"
    with open(said, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=quickstart,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ
            | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        if not answers(process, f"{address}/health", seconds=180):
            pytest.fail(f"no MLflow server (exit code {process.poll()}):\n{said.read_text()}")
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def answers(process: subprocess.Popen[bytes], address: str, seconds: float) -> bool:
    """Whether a server comes to answer there while its process lives."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def test_a_server_that_dies_or_stays_silent_does_not_count_as_one():
    dead = subprocess.Popen([sys.executable, "-c", ""])
    assert not answers(dead, "http://127.0.0.1:1/health", seconds=30)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as silent:
        assert not answers(silent, "http://127.0.0.1:1/health", seconds=0.5)
        silent.kill()


@pytest.fixture
def runs_page(quickstart: Path, mlflow_ui: str, browser: Browser) -> Iterator[Page]:
    """The page that the run's closing words name, once its table is there."""
    (run_dir,) = quickstart.glob("outputs/runs/*/*")
    commands = next_commands(run_dir, quickstart / "outputs", f"sqlite:///{quickstart / 'outputs/mlflow.db'}")
    (address,) = [c.command.partition("# ")[2] for c in commands if c.what == "see the runs in MLflow"]
    page = browser.new_page(viewport={"width": 1600, "height": 1200})
    page.goto(address.replace("http://127.0.0.1:5000", mlflow_ui))
    page.get_by_text("quickstart_debug").wait_for(timeout=60_000)
    yield page
    page.close()


def test_the_named_page_shows_the_pipeline_as_one_row(runs_page: Page):
    assert "13 matching runs" in runs_page.inner_text("body")
    assert runs_page.get_by_text("grpo", exact=True).count() == 0


def test_the_stages_are_under_it(runs_page: Page):
    row = runs_page.get_by_role("row").filter(has_text="quickstart_debug")
    row.get_by_role("button").first.click()
    for stage in ("collect", "curate", "bpe", "pretrain", "sft", "grpo", "evaluate", "export"):
        runs_page.get_by_text(stage, exact=True).wait_for()
