"""The files that a path, a folder or a glob means, the same for who hashes them and who reads them."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

_ESCAPED = re.compile(r"\[([\[?*])\]")
"""How `glob.escape` writes a character that is no wildcard."""


def files_of(path: str, *, hidden: bool = True) -> tuple[Path, list[str]]:
    """The folder that names are relative to, and the sorted names of the files that ``path`` means.

    Of a glob it is the part before the first wildcard. ``**`` enters linked folders, but never
    one that it is already in; hidden files and folders match no wildcard. ``hidden``: whether those
    of a folder count.
    """
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        return Path(path).parent, [os.path.basename(path)]
    if os.path.isdir(path):
        return Path(path), sorted(walk(path, hidden=hidden))
    base = _split(path)[0]
    found = {os.path.relpath(match, base) for match in matches(path)}
    return base, sorted(name.replace(os.sep, "/") for name in found)


def matches(pattern: str) -> Iterator[str]:
    """The files that a glob matches, in no order, some perhaps twice."""
    base, parts = _split(pattern)
    if base.is_dir():
        yield from (match for match in _expand(str(base), parts) if os.path.isfile(match))


def walk(folder: str, *, hidden: bool = True) -> Iterator[str]:
    """Names of all files below ``folder``; linked folders as in `files_of`."""
    for below, names in _tree(folder, frozenset(), hidden=hidden):
        inner = os.path.relpath(below, folder).replace(os.sep, "/")
        yield from (name if inner == "." else f"{inner}/{name}" for name in names)


def _split(pattern: str) -> tuple[Path, list[str]]:
    """The folder before the first wildcard, and the parts from there on."""
    parts = Path(pattern).parts
    wild = (i for i, part in enumerate(parts) if glob.has_magic(_ESCAPED.sub("", part)))
    fixed = next(wild, len(parts) - 1)
    return Path(*(_ESCAPED.sub(r"\1", part) for part in parts[:fixed])), list(parts[fixed:])


def _expand(folder: str, parts: list[str]) -> Iterator[str]:
    """What parts of a glob match below a folder. Python's own ``**`` runs around in a circle of links."""
    if not parts:
        yield folder
    elif parts[0] == "**":
        for below, _ in _tree(folder, frozenset(), hidden=False):
            yield from _expand(below, parts[1:] or ["*"])
    else:
        for match in glob.iglob(os.path.join(glob.escape(folder), parts[0])):
            yield from _expand(match, parts[1:])


def _tree(folder: str, above: frozenset[tuple[int, int]], *, hidden: bool) -> Iterator[tuple[str, list[str]]]:
    """``folder`` and all folders below it, each with the names of its files."""
    try:
        status = os.stat(folder)
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if hidden or entry.name[0] != "."]
    except FileNotFoundError:  # it went away meanwhile
        return
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    yield folder, [entry.name for entry in shown if _holds(entry.is_file)]
    for entry in shown:
        if _holds(entry.is_dir):
            yield from _tree(entry.path, above | {identity}, hidden=hidden)


def _holds(question: Callable[[], bool]) -> bool:
    """What ``is_file`` or ``is_dir`` says; a link that leads to itself is neither, as one to nothing."""
    try:
        return question()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False
