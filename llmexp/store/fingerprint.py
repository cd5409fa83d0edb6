"""Identity of artifacts and of their source data.

A fingerprint is the SHA-256, cut to 128 bits, of everything that can change an artifact, as
canonical JSON: sorted keys, no spaces, ASCII, floats as their shortest round-trip digits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from llmexp.store.errors import KeepsChanging
from llmexp.store.files import files_of, walk
from llmexp.store.machine import cores

FINGERPRINT_LENGTH = 32
"""Hex characters of a fingerprint (128 bits)."""

_SETTLED_SECONDS = 2.0
_SAVE_EVERY_SECONDS = 30.0


def canonical_json(data: Any) -> bytes:
    """``data`` as bytes that are equal for equal data, whatever the order of its keys.

    Raises:
        TypeError: a value or key has no JSON form.
    """
    _refuse_odd_keys(data)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _refuse_odd_keys(data: Any) -> None:
    # json turns the keys 1 and "1" into the same text, so two configs could share a fingerprint.
    if isinstance(data, Mapping):
        for key, value in data.items():
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is {type(key).__name__}, not str")
            _refuse_odd_keys(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            _refuse_odd_keys(value)


def fingerprint(
    *,
    kind: str,
    stage: str,
    version: int | str,
    config: Mapping[str, Any],
    inputs: Mapping[str, str | Sequence[str]],
    source: Mapping[str, str],
) -> str:
    """The identity of the artifact that a stage makes: 32 hex characters.

    ``config`` is ``as_data(spec, result_only=True)``; ``version`` the stage's own; ``inputs``
    the fingerprint, or a list of them, of each need; ``source`` names each thing from outside
    the store (source data, a user's package) with its hash.
    """
    identity = {
        "kind": kind,
        "stage": stage,
        "version": version,
        "config": config,
        "inputs": inputs,
        "source": source,
    }
    return hashlib.sha256(canonical_json(identity)).hexdigest()[:FINGERPRINT_LENGTH]


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content as 64 hex characters; reads it as a stream."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ContentHasher:
    """Hashes of source data, remembered in ``folder`` by path, size and modification time.

    ``folder=None`` remembers nothing. Processes may share a folder: each writes whole files, the
    last one stands, and a lost entry only costs hashing again.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def content_hash(self, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> str:
        """The hash of files, folders or globs: 64 hex characters.

        It covers names relative to the folder (or to the part of a glob without wildcards) and
        contents, not the folder's own place, times or order of listing. Of several paths the
        given order counts, since a stage may read them in that order.

        Raises:
            FileNotFoundError: a path does not exist or a glob matches nothing.
            KeepsChanging: a file kept changing while it was read.
        """
        if isinstance(paths, (str, os.PathLike)):
            return self._hash_one(os.fspath(paths))
        digests = [self._hash_one(os.fspath(path)) for path in paths]
        return hashlib.sha256(canonical_json(digests)).hexdigest()

    def _hash_one(self, path: str) -> str:
        base, names = files_of(path)
        if not names and not os.path.isdir(os.path.expanduser(path)):
            raise FileNotFoundError(f"{path} names no file")
        known = self._load(path)
        fresh: dict[str, list] = {}
        saved = time.monotonic()
        digest = hashlib.sha256()
        with ThreadPoolExecutor(max_workers=cores()) as pool:
            for name, (size, mtime_ns, sha256) in _entries(pool, base, names, known):
                digest.update(canonical_json([name, sha256]) + b"\n")
                # A write within the clock's tick of the one we saw would leave size and time as they are.
                if time.time() - mtime_ns / 1e9 > _SETTLED_SECONDS:
                    fresh[name] = [size, mtime_ns, sha256]
                if time.monotonic() - saved > _SAVE_EVERY_SECONDS:
                    self._save(path, known | fresh)
                    saved = time.monotonic()
        if fresh != known:
            self._save(path, fresh)
        return digest.hexdigest()

    def _memory(self, path: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / f"{hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:32]}.json"

    def _load(self, path: str) -> dict[str, list]:
        memory = self._memory(path)
        if memory is None or not memory.is_file():
            return {}
        try:
            return json.loads(memory.read_bytes())["files"]
        except (ValueError, KeyError):
            return {}  # a torn file of a crashed machine: hash again

    def _save(self, path: str, entries: dict[str, list]) -> None:
        memory = self._memory(path)
        if memory is None:
            return
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary = memory.with_name(f"{memory.stem}.{uuid.uuid4().hex}.tmp")
        try:
            temporary.write_text(json.dumps({"files": entries}))
            os.replace(temporary, memory)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()


def _entries(
    pool: ThreadPoolExecutor, base: Path, names: list[str], known: dict[str, list]
) -> Iterator[tuple[str, tuple[int, int, str]]]:
    # In blocks: the pool's own queue would hold a future for each of a million files.
    for start in range(0, len(names), 4096):
        block = names[start : start + 4096]
        yield from zip(block, pool.map(lambda name: _entry(base / name, known.get(name)), block), strict=True)


def _entry(path: Path, known: list | None) -> tuple[int, int, str]:
    """Size, modification time and hash of one file, the hash from memory where both still fit."""
    for _ in range(3):
        before = path.stat()
        if known is not None and known[:2] == [before.st_size, before.st_mtime_ns]:
            return before.st_size, before.st_mtime_ns, known[2]
        sha256 = file_sha256(path)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return after.st_size, after.st_mtime_ns, sha256
    raise KeepsChanging(f"{path} changes while it is read; copy it or stop what writes it")


def package_source_hash(module_name: str) -> str:
    """The hash of the source of the top-level package (or module) that holds ``module_name``.

    Nothing is imported. Every file counts, relative to the package, except byte code and hidden
    files, since a package's data can change a result as its code does: 64 hex characters.

    Raises:
        ModuleNotFoundError: there is no such package, or it has no source files (built in, zipped).
    """
    top = module_name.partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None:
        raise ModuleNotFoundError(f"there is no package {top!r}", name=top)
    if found.submodule_search_locations is not None:
        files = {n: f for folder in found.submodule_search_locations for n, f in _package_files(folder)}
    else:
        origin = found.origin or ""
        files = {os.path.basename(origin): origin} if os.path.isfile(origin) else {}
    if not files:
        raise ModuleNotFoundError(f"package {top!r} has no source files to hash", name=top)
    entries = [[name, file_sha256(files[name])] for name in sorted(files)]
    return hashlib.sha256(canonical_json(entries)).hexdigest()


def _package_files(folder: str) -> Iterator[tuple[str, str]]:
    for name in walk(folder):
        parts = name.split("/")
        if not any(p.startswith(".") or p == "__pycache__" for p in parts) and not name.endswith(".pyc"):
            yield name, os.path.join(folder, name)


def user_sources(config: Any) -> dict[str, str]:
    """The source hash of each package outside llmexp that a config's ``_target_`` names, by package."""
    tops = {name.partition(".")[0] for name in _targets(config)} - {"llmexp"}
    return {f"package {top}": package_source_hash(top) for top in sorted(tops)}


def _targets(config: Any) -> Iterator[str]:
    if isinstance(config, Mapping):
        if isinstance(config.get("_target_"), str):
            yield config["_target_"]
        for value in config.values():
            yield from _targets(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _targets(value)


@cache
def code_version() -> str:
    """The version of the code that runs now, as ``<release>+source.<12 hex>`` of its own files."""
    try:
        release = importlib.metadata.version("llmexp")
    except importlib.metadata.PackageNotFoundError:
        release = "0"  # run from a folder on the path, not installed: the source hash still tells
    return f"{release}+source.{package_source_hash('llmexp')[:12]}"
