"""The store: finds artifacts, and builds each one once, whole or not at all.

Layout of a root: ``<kind>/<fingerprint>/`` an artifact; ``<kind>/.<fingerprint>.<epoch>.<token>/``
a build in progress, or what a killed one left; ``.leases/<kind>/<fingerprint>/`` lease and epoch;
``.discarded/`` damaged artifacts; ``.masked/`` damaged artifacts of read-only roots; ``.hashes/``
hashes of source data.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmexp.store.artifact import MANIFEST, Artifact, bytes_below
from llmexp.store.build import Build, Waiting, no_room_is_told, remove_folder
from llmexp.store.errors import Ambiguous, Damaged, LeaseLost, NoArtifact, StoreError
from llmexp.store.fingerprint import FINGERPRINT_LENGTH, ContentHasher, code_version
from llmexp.store.lease import LEASE_SECONDS, BuildLease, fsync_path

FINGERPRINT = re.compile(rf"[0-9a-f]{{{FINGERPRINT_LENGTH}}}")
_PREFIX = re.compile(rf"[0-9a-f]{{1,{FINGERPRINT_LENGTH}}}")
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Store:
    """Artifacts in one or more folders; the first is written, the others are only read."""

    def __init__(self, roots: Sequence[Path], *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Open the stores at ``roots``; no folder is made before something is written.

        ``lease_seconds``: how long a silent builder keeps its right, equal in all processes.
        """
        if not roots:
            raise ValueError("a store needs at least one folder")
        self.roots = [Path(root).absolute() for root in roots]
        self.root = self.roots[0]
        self.lease_seconds = lease_seconds
        self.hasher = ContentHasher(self.root / ".hashes")

    def find(self, kind: str, fingerprint: str) -> Artifact | None:
        """The artifact of that kind with this fingerprint, or with this unique start of one; else None.

        Raises:
            Ambiguous: several fingerprints start so.
            Damaged: it is there, but its manifest is broken.
        """
        if FINGERPRINT.fullmatch(fingerprint):
            folder = next(self._folders(kind, fingerprint), None)
        else:
            folder = self._unique(fingerprint, [kind])
        return Artifact.load(folder) if folder else None

    def resolve(self, reference: str) -> Artifact:
        """The artifact that a person names by fingerprint, unique start of one, or folder.

        Raises:
            NoArtifact: there is none.
            Ambiguous: several fingerprints start so; the error lists them.
            Damaged: it is there, but its manifest is broken.
        """
        folder = Path(reference).expanduser()
        if (folder / MANIFEST).is_file():
            return Artifact.load(folder)
        match = self._unique(reference, self.kinds())
        if match is None:
            where = ", ".join(map(str, self.roots))
            raise NoArtifact(
                f"{reference!r} is no folder of an artifact and no start of a fingerprint in {where}"
            )
        return Artifact.load(match)

    def kinds(self) -> builtins.list[str]:
        """The kinds of which there may be artifacts, sorted."""
        folders = (entry for root in self.roots if root.is_dir() for entry in root.iterdir())
        return sorted({entry.name for entry in folders if _KIND.fullmatch(entry.name) and entry.is_dir()})

    def list(self) -> builtins.list[Artifact]:
        """All artifacts with a readable manifest, by kind and fingerprint; see ``broken`` for the rest."""
        return [found for found in self.scan() if isinstance(found, Artifact)]

    def broken(self) -> builtins.list[Damaged]:
        """The artifacts whose manifest is broken. File contents are not read: see ``verify``."""
        return [found for found in self.scan() if isinstance(found, Damaged)]

    def scan(self) -> Iterator[Artifact | Damaged]:
        """Every artifact, or what is wrong with its manifest; one per fingerprint, first root first."""
        for kind in self.kinds():
            for name in self._names(kind):
                try:
                    yield Artifact.load(next(self._folders(kind, name)))
                except Damaged as damage:
                    yield damage
                except StopIteration:
                    continue  # removed while we look

    def verify(self, artifact: Artifact) -> builtins.list[Damaged]:
        """All that is wrong with an artifact, every file read anew; empty when it is whole."""
        return artifact.damages()

    @contextlib.contextmanager
    def build(
        self,
        kind: str,
        fingerprint: str,
        *,
        stage: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, str | Sequence[str]] | None = None,
        run_id: str = "",
        on_wait: Callable[[Waiting], None] | None = None,
    ) -> Iterator[Build]:
        """Build an artifact, unless it is there or another process builds it: then wait for that.

            with store.build("corpus", fingerprint, stage="collect", config=data) as build:
                if build.artifact is None:
                    ...  # write into build.out
                    build.publish(summary)
            artifact = build.artifact

        ``on_wait`` is called about every second while another process builds; what it raises ends
        the wait. When the body raises, its folder is removed.

        Raises:
            Damaged: the artifact is there, but its manifest is broken.
            LeaseLost: another process took the build over.
            StoreFull: there was no room for it.
        """
        if not _KIND.fullmatch(kind) or not FINGERPRINT.fullmatch(fingerprint):
            raise ValueError(
                f"{kind}/{fingerprint}: not a kind and a fingerprint of {FINGERPRINT_LENGTH} hex characters"
            )
        found = self.find(kind, fingerprint)
        if found is not None:
            yield Build(artifact=found)
            return
        about = {
            "kind": kind,
            "fingerprint": fingerprint,
            "stage": stage,
            "config": dict(config),
            "inputs": {n: v if isinstance(v, str) else [*v] for n, v in (inputs or {}).items()},
            "code_version": code_version(),
            "run_id": run_id,
        }
        with no_room_is_told(f"{kind}/{fingerprint}", self._lease_folder(kind, fingerprint)):
            lease = self.lease(kind, fingerprint)
            found = self._acquire(lease, kind, fingerprint, on_wait)
            if found is not None:
                yield Build(artifact=found)
                return
            try:
                yield from self._lead(lease, about)
            finally:
                lease.release()

    def _lead(self, lease: BuildLease, about: dict[str, Any]) -> Iterator[Build]:
        """Build under the lease: outdate, clear away and look for others' work, then let the caller write."""
        kind, fingerprint = about["kind"], about["fingerprint"]
        epoch = lease.claim_epoch({"run_id": about["run_id"], "inputs": about["inputs"]})
        folder = self.root / kind
        folder.mkdir(parents=True, exist_ok=True)
        self.clear_leftovers(kind, fingerprint)
        found = self.find(kind, fingerprint)
        if found is not None:
            yield Build(artifact=found)
            return
        out = folder / f".{fingerprint}.{epoch}.{uuid.uuid4().hex[:8]}"
        build = Build(out=out, lease=lease, about=about)
        try:
            with no_room_is_told(lease.what, out):
                out.mkdir()
                lease.guard()
                yield build
                if build.artifact is None:
                    raise StoreError(f"{lease.what} was left without being published")
        except (LeaseLost, GeneratorExit):
            raise
        except BaseException:
            # Whatever failed (a file that vanished, say): if we were taken over, that is the cause.
            lease.guard()
            raise
        finally:
            remove_folder(out)

    def _acquire(
        self, lease: BuildLease, kind: str, fingerprint: str, on_wait: Callable[[Waiting], None] | None
    ) -> Artifact | None:
        """Return None with the lease held, or the artifact that another process built meanwhile."""
        start, next_word = time.monotonic(), 0.0
        pause = min(0.5, self.lease_seconds / 10)
        while not lease.try_acquire():
            found = self.find(kind, fingerprint)
            if found is not None:
                return found
            waited = time.monotonic() - start
            if on_wait is not None and waited >= next_word:
                next_word = waited + 1.0
                on_wait(Waiting(kind, fingerprint, waited, lease.note()))
            time.sleep(pause)
        return None

    def lease(self, kind: str, fingerprint: str) -> BuildLease:
        """The lease on building one artifact, not yet acquired."""
        folder = self._lease_folder(kind, fingerprint)
        return BuildLease(folder, what=f"{kind}/{fingerprint}", seconds=self.lease_seconds)

    def _lease_folder(self, kind: str, fingerprint: str) -> Path:
        return self.root / ".leases" / kind / fingerprint

    def leftovers(self, kind: str, fingerprint: str) -> builtins.list[Path]:
        """Folders of builds of one artifact, in progress or left by killed builders."""
        folder = self.root / kind
        return sorted(folder.glob(f".{fingerprint}.*")) if folder.is_dir() else []

    def clear_leftovers(self, kind: str, fingerprint: str) -> int:
        """Remove what earlier builders left, and with it their means to publish; the bytes freed.

        Only for the holder of the lease, after it has claimed its epoch.
        """
        freed = 0
        for leftover in self.leftovers(kind, fingerprint):
            freed += bytes_below(leftover)
            remove_folder(leftover)
        return freed

    def discard(self, damaged: Artifact | Damaged) -> Path:
        """Move a damaged artifact aside, so that whoever needs it next builds it again; where it went.

        In a read-only root it stays, and a mark in the first root makes this store overlook it.

        Raises:
            NoArtifact: it is in none of this store's roots (any more).
        """
        source, kind = damaged.path, damaged.path.parent.name
        root = source.parent.parent
        if root not in self.roots or not source.is_dir():
            raise NoArtifact(f"{source} is no artifact of {', '.join(map(str, self.roots))}")
        if root != self.root:
            mask = self._mask(kind, source.name)
            mask.parent.mkdir(parents=True, exist_ok=True)
            mask.write_text(f"{source}\n")
            return mask
        aside = self.root / ".discarded" / f"{kind}.{source.name}.{uuid.uuid4().hex[:8]}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, aside)
        fsync_path(source.parent)
        return aside

    def _mask(self, kind: str, name: str) -> Path:
        return self.root / ".masked" / kind / name

    def _folders(self, kind: str, name: str) -> Iterator[Path]:
        """The folders of one artifact, in the order of the roots."""
        masked = self._mask(kind, name).exists()
        for root in self.roots:
            folder = root / kind / name
            if folder.is_dir() and not (masked and root != self.root):
                yield folder

    def _names(self, kind: str) -> builtins.list[str]:
        names = {n for root in self.roots if (root / kind).is_dir() for n in os.listdir(root / kind)}
        return sorted(name for name in names if FINGERPRINT.fullmatch(name))

    def _unique(self, prefix: str, kinds: Sequence[str]) -> Path | None:
        if not _PREFIX.fullmatch(prefix):
            return None
        matches = [(kind, name) for kind in kinds for name in self._names(kind) if name.startswith(prefix)]
        matches = [(kind, name) for kind, name in matches if any(self._folders(kind, name))]
        if len(matches) > 1:
            raise Ambiguous(prefix, [f"{kind}/{name}" for kind, name in matches])
        return next(self._folders(*matches[0]), None) if matches else None
