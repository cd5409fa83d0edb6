"""A folder of notes, and a folder in which the small pipeline has run once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import SMALL, must, write_notes


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A person's folder with notes in it."""
    write_notes(tmp_path / "notes", 60)
    return tmp_path


@pytest.fixture(scope="session")
def done_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the small pipeline has run; tests only look at it, or copy it."""
    folder = tmp_path_factory.mktemp("done")
    write_notes(folder / "notes", 60)
    must(folder, *SMALL)
    return folder


@pytest.fixture
def again(done_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder to work in."""
    shutil.copytree(done_once, tmp_path, dirs_exist_ok=True)
    return tmp_path
