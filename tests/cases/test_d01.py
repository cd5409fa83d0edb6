"""D01: a parameter too long for MLflow ended the run or took the others along (pytorch-lightning#5892)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from commands import must, write_notes

LENGTHS = (249, 250, 251, 500, 501, 6000, 6001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a stage ran with values of many lengths, the longest two alike but for the end."""
    folder = tmp_path_factory.mktemp("long")
    write_notes(folder / "notes", 20)
    for separator in ("x" * 6001, "x" * 6000 + "y"):
        must(folder, "stage=collect", "data=text_files", "data.path=notes", f"data.separator={separator}")
    suffixes = ",".join(["'.txt'", *(f"'{'x' * n}'" for n in LENGTHS)])
    must(folder, "stage=collect", "data=text_files", "data.path=notes", f"data.suffixes=[{suffixes}]")
    must(folder, "sync")  # on a busy machine the command may end before all is delivered
    return folder


def parameters(folder: Path, key: str) -> list[str]:
    database = sqlite3.connect(folder / "outputs" / "mlflow.db")
    found = database.execute(
        "SELECT p.value FROM params p JOIN runs r USING (run_uuid) WHERE p.key = ? ORDER BY r.start_time",
        (key,),
    ).fetchall()
    database.close()
    return [value for (value,) in found]


def test_two_long_values_stay_different(folder: Path) -> None:
    first, second, *_ = parameters(folder, "data.separator")
    assert first != second
    assert len(first) == len(second) == 6000
    assert "sha256:" in first


def test_all_other_parameters_are_there(folder: Path) -> None:
    assert parameters(folder, "data.heldout") == ["0.05"] * 3


def test_the_whole_value_is_in_the_configuration_of_the_run(folder: Path) -> None:
    texts = [
        path.read_text() for path in (folder / "outputs" / "runs").glob("*/*/collect/artifacts/config.yaml")
    ]
    assert sum("x" * 6001 in text.replace("\\\n", "").replace("\n", "") for text in texts) >= 1
