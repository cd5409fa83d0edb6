"""B02: one bad job stopped the sweep, or only the first failure was shown (hydra#2284, #2551, #1513)."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run, write_notes


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """(folder, exit code, words) of a sweep of three jobs, of which the second fails while it runs."""
    folder = tmp_path_factory.mktemp("swept")
    write_notes(folder / "notes", 20)
    (folder / "notes" / "binary.txt").write_bytes(bytes(range(256)) * 50)
    done = run(
        folder,
        *("-m", "stage=collect", "data=text_files", "data.path=notes", "tracking=none"),
        "data.max_bad_files=9,0,8",
    )
    return folder, done.returncode, done.stderr


def test_the_other_jobs_finish(swept: tuple[Path, int, str]) -> None:
    folder, _, said = swept
    assert "[job 0] done" in said
    assert "[job 2] done" in said
    assert len(list(folder.glob("outputs/store/corpus/*/manifest.json"))) == 2


def test_the_exit_code_tells_of_the_failure(swept: tuple[Path, int, str]) -> None:
    assert swept[1] == 1


def test_the_job_s_own_log_holds_its_traceback(swept: tuple[Path, int, str]) -> None:
    (log,) = swept[0].glob("outputs/sweeps/*/*/1/job.log")
    assert "Traceback" in log.read_text()
    assert "binary.txt" in log.read_text()


def test_the_closing_table_names_the_failed_job_with_its_overrides(swept: tuple[Path, int, str]) -> None:
    (line,) = [line for line in swept[2].splitlines() if "FAILED" in line]
    assert "[job 1]" in line
    assert "data.max_bad_files=0" in line
