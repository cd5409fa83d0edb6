"""B01: a sweep's jobs were pickled together with what the user's config module held (hydra#1083, #3038)."""

from __future__ import annotations

from pathlib import Path

from commands import must, run, write_notes

SWEEP = ["-m", "stage=collect", "data=text_files", "data.path=notes", "tracking=none"]
LOCKED = '''
"""A package whose spec and module hold what cannot be pickled."""
import logging
import threading
from dataclasses import dataclass
from typing import ClassVar

from llmexp.corpus.config import TextFilesSpec

LOCK, LOG = threading.Lock(), logging.getLogger("mine")


@dataclass(kw_only=True)
class LockedSpec(TextFilesSpec):
    """Text files, and a lock."""

    builds: ClassVar[str] = "llmexp.corpus.readers:TextFiles"
    lock: ClassVar[object] = LOCK
'''


def test_jobs_of_a_sweep_are_override_lines(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes", 20)
    done = must(tmp_path, *SWEEP, "data.heldout=0.2,0.4")
    logs = sorted((tmp_path / "outputs" / "sweeps").glob("*/*/*/job.log"))
    assert len(logs) == 2
    assert done.stderr.count("done") == 2
    sizes = [file.stat().st_size for log in logs for file in log.parent.rglob("*") if file.is_file()]
    assert max(sizes) < 1_000_000
    assert not list(tmp_path.rglob("*.pkl"))


def test_what_a_package_of_one_s_own_holds_does_not_travel(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes", 20)
    (tmp_path / "mine.py").write_text(LOCKED)
    done = run(tmp_path, *SWEEP, "data.heldout=0.2,0.4")
    assert done.returncode == 0, done.stderr
