"""The wheel by itself: its own config tree, outputs in the current folder, nothing of the checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from commands import CHECKOUT

pytestmark = pytest.mark.slow

ASKED = "LLMEXP_TEST_OTHER_PYTHON"
"""Set, the wheel is installed with all that it stands on for another Python too: gigabytes from the index."""
PIP = ["-m", "pip", "--disable-pip-version-check", "-q", "install"]


def supported() -> list[str]:
    """The versions of Python that the package declares, newest first."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    found = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    return sorted(found, key=lambda version: int(version.partition(".")[2]), reverse=True)


def other_python() -> str | None:
    """The newest supported Python of this machine beside the one that runs."""
    found: list[str] = []
    for version in supported():
        folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
        folders += sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}*/bin"))
        places = [*os.get_exec_path(), "/usr/local/bin", *map(str, folders)]
        names = filter(None, (shutil.which(f"python{version}", path=place) for place in places))
        if version != f"3.{sys.version_info[1]}":
            found += [name for name in names if succeeds(name, "-c", "import venv, ensurepip")]
    return found[0] if found else None


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def succeed(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed here")
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", folder, CHECKOUT]
    succeed(sys.executable, *PIP[:-1], *build)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["this Python", "the newest other Python"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh environment that holds the wheel."""
    folder = tmp_path_factory.mktemp("venv")
    command, python = folder / "bin" / "llmexp", folder / "bin" / "python"
    if request.param == "this Python":
        # With what the tests' environment holds, but for the checkout: its .pth files stay unread.
        venv.create(folder, with_pip=False)
        site = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
        succeed(sys.executable, *PIP[:-1], "--python", python, "install", "--no-deps", "--no-index", wheel)
        (site / "seen.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return command
    other = other_python()
    if other is None:
        pytest.skip(f"no other Python of {', '.join(supported())} is on this machine")
    if not os.environ.get(ASKED):
        pytest.skip(f"{other} would need gigabytes from the index: make test-wheel")
    succeed(other, "-m", "venv", folder)
    wheels = ["--only-binary", ":all:", "--no-binary", "antlr4-python3-runtime"]  # which has none
    succeed(python, *PIP, *wheels, "-c", CHECKOUT / "constraints.txt", wheel)
    return command


def call(command: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(command), *words],
        cwd=folder,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_quickstart_is_checked_with_the_configs_of_the_wheel(installed, tmp_path):
    done = call(installed, tmp_path, "check", "experiment=quickstart")
    assert done.returncode == 0, done.stderr
    shown = call(installed, tmp_path, "--info", "searchpath")
    assert str(installed.parents[1]) in shown.stdout + shown.stderr
    assert str(CHECKOUT / "conf") not in shown.stdout + shown.stderr


def test_the_quickstart_runs_in_an_empty_folder_and_writes_only_outputs(installed, tmp_path):
    done = call(installed, tmp_path, "experiment=quickstart_debug")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]
    assert len(list(tmp_path.glob("outputs/store/export/*/manifest.json"))) == 1
