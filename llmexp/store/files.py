"""The files that a path, a folder or a glob means, the same for who hashes them and who reads them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path


def files_of(path: str) -> tuple[Path, list[str]]:
    """The folder that names are relative to, and the sorted names of the files that ``path`` means.

    Of a glob it is the part before the first wildcard. ``**`` enters linked folders, but never
    one that it is already in; hidden files and folders match no wildcard.
    """
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        return Path(path).parent, [os.path.basename(path)]
    if os.path.isdir(path):
        return Path(path), sorted(walk(path))
    base = _split(path)[0]
    found = {os.path.relpath(match, base) for match in matches(path) if os.path.isfile(match)}
    return base, sorted(name.replace(os.sep, "/") for name in found)


def matches(pattern: str) -> Iterator[str]:
    """The paths that a glob matches, in no order, some perhaps twice."""
    base, parts = _split(pattern)
    if base.is_dir():
        yield from _expand(str(base), parts)


def walk(folder: str) -> Iterator[str]:
    """Names of all files below ``folder``, hidden ones too; linked folders as in `files_of`."""
    for below in _folders(folder, frozenset()):
        inner = os.path.relpath(below, folder).replace(os.sep, "/")
        with os.scandir(below) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
        yield from (name if inner == "." else f"{inner}/{name}" for name in names)


def _split(pattern: str) -> tuple[Path, list[str]]:
    """The folder before the first wildcard, and the parts from there on."""
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return Path(*parts[:fixed]), list(parts[fixed:])


def _expand(folder: str, parts: list[str]) -> Iterator[str]:
    """What parts of a glob match below a folder. Python's own ``**`` runs around in a circle of links."""
    if not parts:
        yield folder
    elif parts[0] == "**":
        for below in _folders(folder, frozenset(), hidden=False):
            yield from _expand(below, parts[1:] or ["*"])
    else:
        for match in glob.iglob(os.path.join(glob.escape(folder), parts[0])):
            yield from _expand(match, parts[1:])


def _folders(folder: str, above: frozenset[tuple[int, int]], *, hidden: bool = True) -> Iterator[str]:
    """``folder`` and all below it."""
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    yield folder
    with os.scandir(folder) as entries:
        inner = [entry.path for entry in entries if entry.is_dir() and (hidden or entry.name[0] != ".")]
    for path in inner:
        yield from _folders(path, above | {identity}, hidden=hidden)
