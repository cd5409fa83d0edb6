"""Which files a path, a folder or a glob means, and the names they go by."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmexp.corpus.faults import BadData
from llmexp.corpus.streams import COMPRESSIONS
from llmexp.store.files import files_of


@dataclass(frozen=True)
class SourceFile:
    """A file and its name relative to what the person gave."""

    path: Path
    name: str


def inner_suffix(name: str) -> str:
    """The ending of a file's name under that of its compression: ``.txt`` of ``a.txt.gz``."""
    stem, suffix = os.path.splitext(name)
    return os.path.splitext(stem)[1] if suffix.lower() in COMPRESSIONS else suffix


def find_files(path: str, suffixes: Iterable[str]) -> list[SourceFile]:
    """The files that ``path`` means, sorted by name.

    A file or a glob is taken as it is; a folder is searched, subfolders included and hidden
    ones not, for names that end in one of ``suffixes`` (perhaps compressed).

    Raises:
        BadData: there is none.
    """
    given, wanted = os.path.expanduser(path), tuple(suffixes)
    folder = os.path.isdir(given)
    base, names = files_of(given, hidden=False)
    if folder:
        names = [name for name in names if inner_suffix(name).lower() in wanted]
    if not names:
        looked = f" with the endings {' '.join(wanted)}" if folder else ""
        raise BadData(f"data.path={path} holds no file{looked}")
    return [SourceFile(base / name, _readable(name)) for name in names]


def hashed_patterns(path: str, suffixes: Iterable[str]) -> list[str]:
    """What `find_files` reads, as a few paths or globs that cover the names below a folder."""
    given = os.path.expanduser(path)
    if not os.path.isdir(given):
        return [given]
    endings = set()
    for file in find_files(path, suffixes):
        stem, suffix = os.path.splitext(file.name)
        endings.add(os.path.splitext(stem)[1] + suffix if suffix.lower() in COMPRESSIONS else suffix)
    return [os.path.join(glob.escape(given), "**", "*" + glob.escape(ending)) for ending in sorted(endings)]


def _readable(name: str) -> str:
    """A name that is not UTF-8 on the disk, as text that can be written down."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
