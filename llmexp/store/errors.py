"""What can go wrong with artifacts, told to a person."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path


class StoreError(Exception):
    """Base of all errors of the store."""


class Damaged(StoreError):
    """An artifact is not what its manifest says.

    Attributes:
        path: the artifact's folder.
        file: the damaged file, relative to ``path``.
        problem: what is wrong with it.
        kind, fingerprint: the artifact's identity, as far as it is known.
    """

    def __init__(self, path: Path, file: str, problem: str, *, kind: str = "", fingerprint: str = "") -> None:
        self.path = path
        self.file = file
        self.problem = problem
        self.kind = kind or path.parent.name
        self.fingerprint = fingerprint or path.name
        super().__init__(
            f"artifact {self.kind}/{self.fingerprint} is damaged: {path / file} {problem}. "
            f"Run `llmexp store verify {self.fingerprint} --rebuild`: it moves the artifact aside, "
            "and the next run that needs it builds it again"
        )

    def __reduce__(self) -> tuple:
        # The default rebuilds an exception from its message alone, which this constructor does not take.
        return _damaged, (self.path, self.file, self.problem, self.kind, self.fingerprint)


def _damaged(path: Path, file: str, problem: str, kind: str, fingerprint: str) -> Damaged:
    return Damaged(path, file, problem, kind=kind, fingerprint=fingerprint)


class LeaseLost(StoreError):
    """Another process took this build over (this one was stopped, or cut off, for too long)."""


class KeepsChanging(StoreError):
    """A file changed whenever it was read, so that it has no hash."""


class StoreFull(StoreError):
    """There was no room to write an artifact."""


class NoArtifact(StoreError):
    """A reference names no artifact of any store."""


class Ambiguous(StoreError):
    """A reference is a prefix of several fingerprints."""

    def __init__(self, reference: str, candidates: Sequence[str]) -> None:
        self.candidates = list(candidates)
        shown = ", ".join(self.candidates[:10]) + (", …" if len(self.candidates) > 10 else "")
        count = len(self.candidates)
        super().__init__(f"{reference!r} starts {count} artifacts: {shown}. Give more characters")


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""A disk, a quota or a limit takes no more: no fault of llmexp's."""


def no_room(error: BaseException | None) -> str | None:
    """The system's words, if the error, or one that it came from, says that nothing more can be written."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return os.strerror(error.errno)
        # Libraries written in Rust (safetensors, tokenizers) hand on the words without the number.
        if "(os error 28)" in str(error) or os.strerror(errno.ENOSPC) in str(error):
            return os.strerror(errno.ENOSPC)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None
