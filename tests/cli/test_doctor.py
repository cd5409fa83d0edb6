"""``llmexp doctor``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture
def findings(llmexp, tmp_path, monkeypatch):
    """What doctor says, by what was looked at."""
    monkeypatch.chdir(tmp_path)

    def examine(*words: str) -> dict[str, dict[str, str]]:
        said = llmexp("doctor", *words, "--json").json
        return {finding["what"]: finding for finding in said["findings"]}

    return examine


def test_versions_devices_disks_and_plugins_are_all_looked_at(findings):
    found = findings()
    wanted = {
        "python",
        "llmexp",
        "torch",
        "mlflow",
        "hydra launcher",
        "cores",
        "memory",
        "C++ compiler",
        "outputs",
        "store",
        "slurm",
    }
    assert wanted <= set(found)
    assert found["outputs"]["level"] == "ok"


def test_a_tracking_server_that_does_not_answer_is_a_warning_with_a_way_out(findings):
    found = findings("tracking.uri=http://127.0.0.1:9")["mlflow"]
    assert found["level"] == "warning"
    assert "127.0.0.1:9" in found["found"]
    assert "llmexp sync" in found["fix"]


def test_a_tracking_database_that_is_none_is_a_warning(findings, tmp_path):
    (tmp_path / "mlflow.db").write_text("this is no database, whatever its name says")
    found = findings(f"tracking.uri=sqlite:///{tmp_path}/mlflow.db")["mlflow"]
    assert found["level"] == "warning"


def test_a_read_only_store_that_is_missing_is_a_warning(findings):
    found = findings("paths.store=[outputs/store,nowhere/team]")["store (read-only)"]
    assert found["level"] == "warning"
    assert "nowhere/team" in found["found"]


def test_a_library_that_is_too_old_is_essential_and_named_with_the_fix(tmp_path):
    (tmp_path / "safetensors-0.1.dist-info").mkdir()
    (tmp_path / "safetensors-0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: safetensors\nVersion: 0.1\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", "doctor"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])},
    )
    line = next(line for line in done.stdout.splitlines() if "safetensors" in line)
    assert "0.1, and >=0.5 is needed" in line
    assert "pip install 'safetensors>=0.5'" in line
    assert done.returncode == 1


def test_a_mistake_in_the_overrides_is_told_as_one(llmexp):
    said = llmexp("doctor", "tracking.urii=http://x")
    assert said.code == 2
    assert "tracking.uri" in said.err
