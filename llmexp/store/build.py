"""One artifact on its way: a folder beside its place, and the rename that publishes it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmexp.store.artifact import Artifact, Manifest, bytes_below, seal
from llmexp.store.errors import LeaseLost, StoreError, StoreFull, no_room
from llmexp.store.lease import BuildLease, fsync_path

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """What a process that waits for another's build is told."""

    kind: str
    fingerprint: str
    seconds: float
    """How long it has waited."""
    builder: dict[str, Any]
    """What is known of the builder: ``host``, ``pid``, ``since`` (Unix seconds), ``run_id``; may be empty."""


class Build:
    """One artifact on its way. Either ``artifact`` is there already, or ``out`` is to be filled."""

    def __init__(
        self,
        *,
        artifact: Artifact | None = None,
        out: Path | None = None,
        lease: BuildLease | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.artifact = artifact
        self._out = out
        self._lease = lease
        self._about = dict(about or {})

    @property
    def out(self) -> Path:
        """The empty folder to write into. It becomes the artifact when published."""
        if self._out is None:
            raise StoreError("this artifact exists already: there is nothing to build")
        return self._out

    def made_by(self, run_id: str) -> None:
        """Say which run builds, once that is known."""
        self._about["run_id"] = run_id

    def guard(self) -> None:
        """Return if this process is still the one that builds; cheap enough for every checkpoint.

        Raises:
            LeaseLost: another process took the build over.
        """
        if self._lease is not None:
            self._lease.guard()

    def publish(self, summary: Mapping[str, Any] | None = None) -> Artifact:
        """Hash, fsync and rename ``out`` into place; ``summary`` goes into the manifest.

        If the artifact is there meanwhile, that one stands and ours is dropped.

        Raises:
            LeaseLost: another process took the build over.
            ValueError: a file with a name that is not portable, a link, or a file named manifest.json.
        """
        self.guard()
        manifest = Manifest(
            **self._about,
            files=seal(self.out),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            summary=dict(summary or {}),
        )
        manifest.write(self.out)
        fsync_path(self.out)
        target = self.out.parent / manifest.fingerprint
        self.guard()
        try:
            # The successor renames our folder away before it builds (see Store.clear_leftovers), so a
            # process that is stopped right here still cannot publish after that.
            os.rename(self.out, target)
        except FileNotFoundError as error:
            raise LeaseLost(f"{self.out} was removed by the process that took this build over") from error
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            log.info("%s exists already; keeping it", target)
        fsync_path(target.parent)
        self.artifact = Artifact.load(target)
        return self.artifact


def remove_folder(folder: Path) -> None:
    """Remove a folder that somebody may still write into: it vanishes at once, its files after that."""
    if ".trash." in folder.name:
        trash = folder
    else:
        fingerprint = folder.name.lstrip(".").partition(".")[0]
        trash = folder.with_name(f".{fingerprint}.trash.{uuid.uuid4().hex[:8]}")
        try:
            os.rename(folder, trash)
        except FileNotFoundError:
            return
    shutil.rmtree(trash, onerror=_tell_what_stays)


def _tell_what_stays(_function: Any, path: str, why: tuple[Any, BaseException, Any]) -> None:
    # A file that is open on another machine stays (NFS). The next builder or `prune` tries again.
    if not isinstance(why[1], FileNotFoundError):
        log.warning("%s could not be removed: %s", path, why[1])


@contextlib.contextmanager
def no_room_is_told(what: str, folder: Path) -> Iterator[None]:
    """Turn an error that means "no room", whichever library raised it, into a StoreFull."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        reason = no_room(error)
        if reason is None:
            raise
        place = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        written = bytes_below(folder)
        free = shutil.disk_usage(place).free
        raise StoreFull(
            f"{what} could not be written to {folder}: {reason} ({error}). It needs more than the "
            f"{written:,} bytes that were written, and {free:,} bytes were free beside them. They are "
            "removed again; make room (`llmexp store prune --dry-run` shows what can go) or set paths.store "
            "to another folder"
        ) from error
