"""An artifact on disk: its manifest, and files that are verified before they are read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from llmexp.store.errors import Damaged
from llmexp.store.fingerprint import canonical_json, file_sha256
from llmexp.store.lease import fsync_path

MANIFEST = "manifest.json"
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9._/-]+")

_verified: set[tuple[str, int, int, str]] = set()
"""Path, size, mtime in ns and SHA-256 of what this process has read and found whole."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What ``manifest.json`` says about an artifact."""

    kind: str
    """What the artifact is: corpus, tokenizer, shards, model, …"""
    fingerprint: str
    """32 hex characters."""
    stage: str
    """The stage that made it."""
    config: dict[str, Any]
    """The stage's whole composition, also what cannot change the result."""
    inputs: dict[str, str | list[str]]
    """The fingerprint, or a list of them, of each need."""
    files: dict[str, dict[str, Any]]
    """For each file, by relative path with ``/``: ``sha256`` (64 hex) and ``bytes``."""
    code_version: str
    """Release and source hash of the llmexp that built it."""
    run_id: str
    """The run that built it."""
    created: str
    """When it was published: ISO 8601, UTC."""
    summary: dict[str, Any] = field(default_factory=dict)
    """Counts and figures that the stage returned."""

    @property
    def bytes(self) -> int:
        """Size of all files together, without the manifest."""
        return sum(entry["bytes"] for entry in self.files.values())

    def input_fingerprints(self) -> list[str]:
        """The fingerprints of all inputs, flat."""
        flat: list[str] = []
        for value in self.inputs.values():
            flat += [value] if isinstance(value, str) else value
        return flat

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` into ``folder``, with a checksum of itself, and fsync it."""
        data = {"format": _FORMAT, **asdict(self)}
        data["checksum"] = _checksum(data)
        with open(folder / MANIFEST, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of the artifact in ``folder``.

        Raises:
            Damaged: it is missing, not JSON, or not what was written.
        """
        try:
            data = json.loads((folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            raise Damaged(folder, MANIFEST, "is missing") from None
        except (ValueError, OSError) as error:
            raise Damaged(folder, MANIFEST, f"cannot be read ({error})") from error
        if not isinstance(data, dict) or data.pop("checksum", None) != _checksum(data):
            raise Damaged(folder, MANIFEST, "does not match its own checksum")
        if data.pop("format") != _FORMAT:
            raise Damaged(folder, MANIFEST, "was written by a newer llmexp; use that one, or rebuild")
        return cls(**{f.name: data[f.name] for f in fields(cls)})


def _checksum(data: Mapping[str, Any]) -> str:
    # Through JSON once, so that what is hashed is what a reader will find.
    return hashlib.sha256(canonical_json(json.loads(json.dumps(data)))).hexdigest()


@dataclass(frozen=True)
class Artifact:
    """An immutable folder ``<store>/<kind>/<fingerprint>``; ``load`` reads one from disk."""

    path: Path
    """The folder, absolute."""
    manifest: Manifest

    @classmethod
    def load(cls, path: Path) -> Artifact:
        """The artifact in the folder ``path``; of its files only the manifest is read.

        Raises:
            Damaged: the manifest is missing or broken.
        """
        path = path.absolute()
        return cls(path, Manifest.read(path))

    @property
    def kind(self) -> str:
        """What the artifact is."""
        return self.manifest.kind

    @property
    def fingerprint(self) -> str:
        """32 hex characters."""
        return self.manifest.fingerprint

    def file(self, name: str) -> Path:
        """The path of one file, verified: its SHA-256 is computed once a process and must fit.

        Raises:
            KeyError: the artifact never had such a file.
            Damaged: the file is missing, or its content is not what was written.
        """
        if name not in self.manifest.files:
            known = ", ".join(sorted(self.manifest.files)[:10])
            raise KeyError(f"artifact {self.kind}/{self.fingerprint} has no file {name!r}; it has {known}")
        self._verify(name, trust_memory=True)
        return self.path / name

    def names(self, prefix: str = "") -> list[str]:
        """Relative paths of the files below ``prefix`` (``"train/"``), sorted."""
        return sorted(name for name in self.manifest.files if name.startswith(prefix))

    def folder(self, prefix: str = "") -> Path:
        """The folder itself, or one in it, once every file below it is verified as in ``file``.

        For readers that take a folder: a tokenizer, a Hugging Face model.

        Raises:
            Damaged: the first file, in order of name, that is not what was written.
        """
        for damage in self._damages(self.names(prefix), trust_memory=True):
            raise damage
        return self.path / prefix

    def check_sizes(self) -> None:
        """Look whether every file is there in its length; nothing is read.

        Raises:
            Damaged: one is not.
        """
        for name in self.manifest.files:
            self._status(name)

    def damages(self) -> list[Damaged]:
        """All that is wrong, every file read anew; files that the manifest does not know count too."""
        found = list(self._damages(self.names(), trust_memory=False))
        for name in sorted(files_below(self.path) - set(self.manifest.files) - {MANIFEST}):
            found.append(self._damage(name, "is not in the manifest: somebody put it there"))
        return found

    def _damages(self, names: list[str], *, trust_memory: bool) -> Iterator[Damaged]:
        def look(name: str) -> Damaged | None:
            try:
                self._verify(name, trust_memory=trust_memory)
            except Damaged as damage:
                return damage
            return None

        with ThreadPoolExecutor() as pool:
            yield from (damage for damage in pool.map(look, names) if damage is not None)

    def _status(self, name: str) -> os.stat_result:
        expected = self.manifest.files[name]["bytes"]
        try:
            status = (self.path / name).stat()
        except FileNotFoundError:
            raise self._damage(name, "is missing") from None
        if status.st_size != expected:
            raise self._damage(name, f"has {status.st_size:,} bytes instead of {expected:,}")
        return status

    def _verify(self, name: str, *, trust_memory: bool) -> None:
        path, entry, status = self.path / name, self.manifest.files[name], self._status(name)
        key = (str(path), status.st_size, status.st_mtime_ns, entry["sha256"])
        if trust_memory and key in _verified:
            return
        try:
            found = file_sha256(path)
        except OSError as error:
            raise self._damage(name, f"cannot be read ({error})") from error
        if found != entry["sha256"]:
            _verified.discard(key)
            raise self._damage(name, f"has SHA-256 {found[:16]}… instead of {entry['sha256'][:16]}…")
        _verified.add(key)

    def _damage(self, name: str, problem: str) -> Damaged:
        return Damaged(self.path, name, problem, kind=self.kind, fingerprint=self.fingerprint)


def seal(folder: Path) -> dict[str, dict[str, Any]]:
    """Hash and fsync all that a builder wrote into ``folder``: the manifest's ``files``.

    Raises:
        ValueError: a file whose name is not portable, a link, or no plain file.
    """
    names = sorted(files_below(folder))
    if MANIFEST in names:
        raise ValueError(f"{folder / MANIFEST}: the store writes this file, a stage must not")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{folder / name}: a file of an artifact is named with A-Z a-z 0-9 . _ - only")
        if (folder / name).is_symlink() or not (folder / name).is_file():
            raise ValueError(f"{folder / name}: an artifact holds plain files, no links and no devices")
    with ThreadPoolExecutor() as pool:
        entries = dict(zip(names, pool.map(lambda name: _sealed(folder / name), names), strict=True))
    for parent in sorted({(folder / name).parent for name in names} | {folder}, reverse=True):
        fsync_path(parent)
    return entries


def _sealed(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"sha256": sha256, "bytes": os.fstat(file.fileno()).st_size}


def files_below(folder: Path) -> set[str]:
    """Relative paths, with ``/``, of everything in ``folder`` that is no real folder."""
    found = set()
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        paths = (os.path.relpath(os.path.join(parent, name), folder) for name in names + links)
        found |= {path.replace(os.sep, "/") for path in paths}
    return found


def bytes_below(folder: Path) -> int:
    """Size of all files in ``folder``; files that vanish meanwhile count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total
