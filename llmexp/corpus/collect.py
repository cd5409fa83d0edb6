"""From a source to a corpus: records split into train and held-out, and counts of what was wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llmexp.corpus.census import Census
from llmexp.corpus.config import (
    DataSpec,
    DocstringChatsSpec,
    FileDataSpec,
    HuggingFaceSpec,
    PythonStdlibSpec,
)
from llmexp.corpus.faults import BadData
from llmexp.corpus.records import CorpusWriter, Record, hash01, split_key
from llmexp.corpus.source import Source
from llmexp.track.progress import Interrupted, Progress

REPORT_EVERY = 256
"""Documents between two looks at the stop flag."""


def never() -> bool:
    """A stop flag that is never set."""
    return False


def collect(
    spec: DataSpec,
    out: Path,
    *,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = never,
) -> dict[str, Any]:
    """Read a source into a corpus at ``out``.

    Returns:
        the corpus' ``stats.json``: documents and characters by split, kind and source, and the
        bad files and records (counted, and listed up to a hundred).

    Raises:
        BadData: the source cannot be used, or one side of the split is empty.
        llmexp.track.progress.Interrupted: ``should_stop`` said so.
    """
    source: Source = spec.build()
    census = Census()
    shown = progress or Progress(quiet=True)
    with CorpusWriter(out) as writer, shown.task("collect", unit="documents") as task:
        for split, record in _with_heldout(source):
            writer.write(split, record)
            census.add(split, record)
            if census.total % REPORT_EVERY == 0:
                stop_if(should_stop)
                task.update(census.total)
        task.update(census.total)
        _check_sides(source, census)
        statistics = {**census.summary(), **source.faults.summary()}
        writer.statistics(statistics)
    return statistics


def _with_heldout(source: Source) -> Iterator[tuple[str, Record]]:
    """The records with their splits; in a small corpus the train text of lowest hash is held out if none is.

    Records of the lowest key so far wait until one is held out by itself, so few are in memory.
    """
    waiting: list[Record] = []
    lowest = 2.0
    settled = not source.must_hold_out()
    for record in source.documents():
        split = source.split(record)
        if settled or split == "heldout":
            settled = True
            yield from (("train", waited) for waited in waiting)
            waiting = []
            yield split, record
            continue
        hashed = hash01(split_key(record))
        if hashed < lowest:
            yield from (("train", waited) for waited in waiting)
            waiting, lowest = [record], hashed
        elif hashed == lowest:
            waiting.append(record)
        else:
            yield "train", record
    yield from (("train" if settled else "heldout", waited) for waited in waiting)


def _check_sides(source: Source, census: Census) -> None:
    train, heldout = census.documents["train"], census.documents["heldout"]
    if not census.total:
        raise BadData("the source gave no document")
    if source.must_hold_out() and not (train and heldout):
        raise BadData(
            f"too few documents to train on some and hold out others ({census.total}): give more text, "
            "cut it finer (data.piece_chars of text_files), or set data.heldout=0"
        )


def source_paths(spec: DataSpec) -> list[str]:
    """What the content hash of a source covers: local paths, folders or globs; empty where there are none.

    Raises:
        BadData: the path names nothing.
    """
    from llmexp.corpus import files, stdlib

    if isinstance(spec, FileDataSpec):
        return files.hashed_patterns(spec.path, spec.build().wanted())
    if isinstance(spec, PythonStdlibSpec):
        return stdlib.source_patterns(spec.exclude)
    if isinstance(spec, DocstringChatsSpec):
        return stdlib.source_patterns(PythonStdlibSpec().exclude)
    if isinstance(spec, HuggingFaceSpec) and _is_local(spec):
        return [str(Path(spec.path).expanduser())]
    return []


def pin_revision(spec: DataSpec) -> str | None:
    """The commit that a source on the Hub has now, which ``spec`` gets; None for any other. Asks the network.

    Raises:
        BadData: the Hub does not answer or knows no such dataset.
    """
    if not isinstance(spec, HuggingFaceSpec) or _is_local(spec):
        return None
    from llmexp.corpus.hub import resolved_revision

    spec.revision = resolved_revision(spec.path, spec.revision)
    return spec.revision


def _is_local(spec: HuggingFaceSpec) -> bool:
    return Path(spec.path).expanduser().is_dir()


def stop_if(should_stop: Callable[[], bool]) -> None:
    """Raise `Interrupted` when a stop was asked for."""
    if should_stop():
        raise Interrupted("the corpus was not finished; the next start begins it again")
