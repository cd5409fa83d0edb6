"""Who may build an artifact: a lease that survives crashes, and an epoch that outdates its holders.

The lease is filelock's ``SoftFileLease``: a marker file that its holder touches. It works on a
shared filesystem and is taken over from a holder that died or was cut off, so for a moment two
processes can believe that they hold it. The epoch settles that (a fencing token, M. Kleppmann,
"How to do distributed locking", 2016): whoever acquires the lease first of all claims the next
number by exclusive creation, and a holder with a lower number stops at its next ``guard``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import SoftFileLease, Timeout

from llmexp.store.errors import LeaseLost

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a silent holder keeps its lease, in seconds. All processes of a store must agree."""

_EPOCH_PREFIX = "epoch."


class BuildLease:
    """The right to build one artifact. ``folder`` belongs to that artifact alone.

    Not re-entrant; one object serves one thread that builds, but ``guard`` may be called from any.
    """

    def __init__(self, folder: Path, *, what: str, seconds: float = LEASE_SECONDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.what = what
        self.epoch = 0
        self._lost = ""
        self._lease = SoftFileLease(
            folder / "lease",
            lease_duration=seconds,
            thread_local=False,
            on_compromise=lambda compromise: self._lose(compromise.reason),
        )

    def _lose(self, reason: str) -> None:
        self._lost = reason
        log.warning("lost the lease on %s: %s", self.what, reason)

    def try_acquire(self) -> bool:
        """Take the lease if it is free or its holder is dead; never waits.

        A holder on another machine counts as dead once its marker was seen unchanged for the
        lease's duration by this same object, so ask again and again with one object.
        """
        try:
            self._lease.acquire(timeout=0)
        except Timeout:
            return False
        self._lost = ""
        return True

    def claim_epoch(self, note: Mapping[str, Any]) -> int:
        """Outdate every earlier holder. ``note`` is kept for those who wait (see ``holder``)."""
        content = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time(), **note})
        while True:
            epoch = self.current_epoch() + 1
            try:
                descriptor = os.open(self._epoch_file(epoch), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            with os.fdopen(descriptor, "w") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fsync_path(self.folder)
            break
        for old in self._epochs():
            # The one before stays: a listing taken while we delete must never come out empty.
            if old < epoch - 1:
                self._epoch_file(old).unlink(missing_ok=True)
        self.epoch = epoch
        return epoch

    def guard(self) -> None:
        """Return if this process may still write.

        The successor claims its epoch before it does anything else, so while this passes nobody
        else has begun.

        Raises:
            LeaseLost: the lease was lost, or another process has claimed a later epoch.
        """
        current = self.current_epoch()
        if not self._lost and current == self.epoch:
            return
        why = self._lost or f"epoch {current} was begun after ours, {self.epoch}"
        raise LeaseLost(
            f"{self.what} was taken over by another process ({why}). This one stops here and has written "
            "nothing; run the command again to use what the other builds"
        )

    def release(self) -> None:
        """Give the lease back. The epoch stays."""
        self._lease.release()

    def current_epoch(self) -> int:
        """The last epoch that anybody began; 0 for none."""
        return max(self._epochs(), default=0)

    def note(self) -> dict[str, Any]:
        """What the last builder told about itself: host, pid, since (Unix seconds), and its own note."""
        try:
            return json.loads(self._epoch_file(self.current_epoch()).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}  # nobody yet, or a builder that died within the write

    def _epochs(self) -> list[int]:
        found = (name.removeprefix(_EPOCH_PREFIX) for name in os.listdir(self.folder) if "epoch." in name)
        return [int(number) for number in found if number.isdecimal()]

    def _epoch_file(self, epoch: int) -> Path:
        return self.folder / f"{_EPOCH_PREFIX}{epoch}"


def fsync_path(path: Path) -> None:
    """Make a file's content, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
