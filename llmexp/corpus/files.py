"""Which files a path, a folder or a glob means, and the names they go by."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmexp.corpus.faults import BadData
from llmexp.corpus.streams import COMPRESSIONS


@dataclass(frozen=True)
class SourceFile:
    """A file and its name relative to what the person gave."""

    path: Path
    name: str


def inner_suffix(name: str) -> str:
    """The ending of a file's name under that of its compression: ``.txt`` of ``a.txt.gz``."""
    stem, suffix = os.path.splitext(name)
    return os.path.splitext(stem)[1] if suffix in COMPRESSIONS else suffix


def find_files(path: str, suffixes: Iterable[str]) -> list[SourceFile]:
    """The files that ``path`` means, sorted by name.

    A file or a glob is taken as it is; a folder is searched, subfolders included and hidden
    ones not, for names that end in one of ``suffixes`` (perhaps compressed).

    Raises:
        BadData: there is none.
    """
    given, wanted = os.path.expanduser(path), tuple(suffixes)
    if os.path.isfile(given):
        return [SourceFile(Path(given), os.path.basename(given))]
    if os.path.isdir(given):
        base = given
        pattern = os.path.join(glob.escape(given), "**", "*")
        found = [f for f in glob.iglob(pattern, recursive=True) if inner_suffix(f).lower() in wanted]
    else:
        base = _fixed_part(given)
        found = list(glob.iglob(given, recursive=True))
    files = sorted({os.path.relpath(f, base).replace(os.sep, "/") for f in found if os.path.isfile(f)})
    if not files:
        looked = f" with the endings {' '.join(wanted)}" if os.path.isdir(given) else ""
        raise BadData(f"data.path={path} holds no file{looked}")
    return [SourceFile(Path(base, name), name) for name in files]


def hashed_patterns(path: str, suffixes: Iterable[str]) -> list[str]:
    """What `find_files` reads, as a few paths or globs that cover the names below a folder."""
    given = os.path.expanduser(path)
    if not os.path.isdir(given):
        return [given]
    endings = set()
    for file in find_files(path, suffixes):
        stem, suffix = os.path.splitext(file.name)
        endings.add(os.path.splitext(stem)[1] + suffix if suffix in COMPRESSIONS else suffix)
    return [os.path.join(glob.escape(given), "**", "*" + glob.escape(ending)) for ending in sorted(endings)]


def _fixed_part(pattern: str) -> str:
    """The folder of a glob that comes before its first wildcard."""
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return str(Path(*parts[:fixed])) if fixed else "."
