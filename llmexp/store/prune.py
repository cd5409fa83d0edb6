"""Removing artifacts that no kept run depends on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llmexp.store.artifact import MANIFEST, Artifact, bytes_below
from llmexp.store.build import remove_folder
from llmexp.store.errors import Damaged
from llmexp.store.store import FINGERPRINT, Store


@dataclass(frozen=True)
class Removal:
    """One thing that was removed, or would be."""

    what: str
    """``artifact``, ``leftover`` (of a killed build) or ``discarded`` (a damaged artifact moved aside)."""
    path: Path
    bytes: int


@dataclass
class Pruned:
    """What a prune removed, or in a dry run would remove."""

    removed: list[Removal] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Size of all that was removed."""
        return sum(removal.bytes for removal in self.removed)


def prune(store: Store, keep: Collection[str], *, dry_run: bool = False) -> Pruned:
    """Remove from the store's first root what no kept artifact depends on.

    ``keep``: the full fingerprints that runs refer to; with them stay their inputs, the inputs of
    those, and so on; what is being built or held by a lease now, and its inputs, stays too.
    Leftovers of killed builds and discarded artifacts go. Read-only roots are never touched.
    Collect ``keep`` from all runs, those that still go on included: an artifact that was just
    published is held by nothing else.

    Raises:
        Damaged: the manifest of a kept artifact is broken, so its inputs are not known. Nothing
            was removed.
    """
    needed = _closure(store, {*keep, *_held(store)})
    result = Pruned()
    for kind in store.kinds():
        folder = store.root / kind
        names = os.listdir(folder) if folder.is_dir() else []
        starts = {name.lstrip(".").partition(".")[0] for name in names}
        # Whatever else lies here is not ours: the root may be a folder of other things, given by mistake.
        for fingerprint in sorted(start for start in starts if FINGERPRINT.fullmatch(start)):
            _prune_one(store, kind, fingerprint, needed, result, dry_run)
    discarded = store.root / ".discarded"
    for path in sorted(discarded.iterdir()) if discarded.is_dir() else ():
        result.removed.append(Removal("discarded", path, bytes_below(path)))
        if not dry_run:
            shutil.rmtree(path)
    return result


def _closure(store: Store, keep: set[str]) -> set[str]:
    """``keep`` and everything that it depends on."""
    found: dict[str, list[Artifact | Damaged]] = {}
    for entry in store.scan():
        found.setdefault(entry.path.name, []).append(entry)
    needed: set[str] = set()
    todo = list(keep)
    while todo:
        fingerprint = todo.pop()
        if fingerprint in needed:
            continue
        needed.add(fingerprint)
        for entry in found.get(fingerprint, ()):
            if isinstance(entry, Damaged):
                raise entry
            todo += entry.manifest.input_fingerprints()
    return needed


def _held(store: Store) -> Iterator[str]:
    """What is being built now, or was when its builder died on another machine, and its inputs."""
    leases = store.root / ".leases"
    for marker in sorted(leases.glob("*/*/lease")) if leases.is_dir() else ():
        lease = store.lease(marker.parent.parent.name, marker.parent.name)
        if lease.try_acquire():
            lease.release()
            continue
        yield marker.parent.name
        for value in lease.note().get("inputs", {}).values():
            yield from [value] if isinstance(value, str) else value


def _prune_one(
    store: Store, kind: str, fingerprint: str, needed: set[str], result: Pruned, dry_run: bool
) -> None:
    """Remove one artifact, and what killed builders left of it, while nobody else may build it."""
    folder = store.root / kind / fingerprint
    artifact = (folder / MANIFEST).is_file() and fingerprint not in needed
    leftovers = store.leftovers(kind, fingerprint)
    if not artifact and not leftovers:
        return
    lease = store.lease(kind, fingerprint)
    if not lease.try_acquire():
        return  # somebody has begun to build it since we looked
    try:
        # Without a new epoch a stopped builder that lost its lease could go on into a removed folder.
        if not dry_run:
            lease.claim_epoch({"prune": True})
        for path in leftovers:
            result.removed.append(Removal("leftover", path, bytes_below(path)))
            if not dry_run:
                remove_folder(path)
        if artifact:
            result.removed.append(Removal("artifact", folder, bytes_below(folder)))
            if not dry_run:
                remove_folder(folder)
    finally:
        lease.release()
