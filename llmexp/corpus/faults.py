"""What was wrong with the input: named, counted, and fatal only over a limit."""

from __future__ import annotations

from collections import Counter
from typing import Any

LISTED = 100
"""Bad files and records are counted without end, and listed up to this many."""


class BadData(Exception):
    """Input data cannot be used; the message names the data and what to do."""


class BrokenFile(Exception):
    """The rest of a file cannot be read. The message says why."""


class Faults:
    """Counts bad files and records of one source.

    Args:
        on_bad_file: ``fail`` makes the first bad file an error; ``skip`` goes on.
        max_bad_files, max_bad_records: more than these are an error.
    """

    def __init__(
        self,
        *,
        on_bad_file: str = "skip",
        max_bad_files: int | None = None,
        max_bad_records: int | None = None,
    ) -> None:
        self.on_bad_file = on_bad_file
        self.max_bad_files = max_bad_files
        self.max_bad_records = max_bad_records
        self.n_bad_files = 0
        self.n_bad_records = 0
        self.bad_files: list[dict[str, Any]] = []
        self.bad_records: list[dict[str, Any]] = []
        self.repaired: Counter[str] = Counter()

    def bad_file(self, file: str, problem: str, records: int) -> None:
        """Count a file that is bad from some place on, after ``records`` complete records.

        Raises:
            BadData: bad files are not tolerated, or there are too many.
        """
        self.n_bad_files += 1
        if len(self.bad_files) < LISTED:
            self.bad_files.append({"file": file, "problem": problem, "records": records})
        if self.on_bad_file == "fail":
            raise BadData(
                f"{file}: {problem} (after {records} complete records). "
                "Mend or remove it, or set data.on_bad_file=skip to go on without the rest of it"
            )
        if self.max_bad_files is not None and self.n_bad_files > self.max_bad_files:
            shown = "; ".join(f"{bad['file']}: {bad['problem']}" for bad in self.bad_files[:10])
            raise BadData(
                f"{self.n_bad_files} bad files, and data.max_bad_files={self.max_bad_files} are allowed: "
                f"{shown}. Mend or remove them, or raise data.max_bad_files"
            )

    def bad_record(self, file: str, number: int, problem: str) -> None:
        """Count one record (line or row ``number``, from 1) that cannot be used.

        Raises:
            BadData: there are too many.
        """
        self.n_bad_records += 1
        if len(self.bad_records) < LISTED:
            self.bad_records.append({"file": file, "record": number, "problem": problem})
        if self.max_bad_records is not None and self.n_bad_records > self.max_bad_records:
            shown = "; ".join(f"{r['file']}:{r['record']}: {r['problem']}" for r in self.bad_records[:10])
            raise BadData(
                f"{self.n_bad_records} bad records, and data.max_bad_records={self.max_bad_records} "
                f"are allowed: {shown}. Mend them, or raise data.max_bad_records"
            )

    def summary(self) -> dict[str, Any]:
        """The counts and the listed problems, as JSON data."""
        return {
            "n_bad_files": self.n_bad_files,
            "bad_files": self.bad_files,
            "n_bad_records": self.n_bad_records,
            "bad_records": self.bad_records,
            "repaired": dict(sorted(self.repaired.items())),
        }
