"""The wheel by itself: its own config tree, outputs in the current folder, nothing of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from commands import CHECKOUT, write_notes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh environment that holds the wheel, and sees what it is built on."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(CHECKOUT)]
    made = subprocess.run([*pip, *build], capture_output=True, text=True, check=False)
    if made.returncode and "hatchling" in made.stderr:
        pytest.skip("hatchling, which builds the wheel, is not installed here")
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    site = folder / "venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    into = ["--python", str(folder / "venv" / "bin" / "python"), "install", "--no-deps", "--no-index"]
    done = subprocess.run([*pip, *into, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Not a .pth: those of the tests' environment, the checkout's own among them, stay unread.
    (site / "seen.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv" / "bin" / "llmexp"


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


def test_a_pipeline_runs_in_an_empty_folder_and_writes_only_outputs(installed, tmp_path):
    write_notes(tmp_path / "notes", 20)
    words = [
        *(
            "data=text_files",
            "data.path=notes",
            "data.heldout=0.2",
            "tokenizer.vocab_size=300",
            "model=debug",
        ),
        *("loader.seq_len=64", "trainer=debug", "tracking=none"),
    ]
    done = call(installed, tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "outputs"]
    assert len(list(tmp_path.glob("outputs/store/model/*/manifest.json"))) == 1
