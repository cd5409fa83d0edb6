"""From a corpus to a better one: ordered steps on all cores, and a record of what they removed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmexp.corpus.census import Census
from llmexp.corpus.collect import never, stop_if
from llmexp.corpus.curation.config import CurationSpec, StepSpec
from llmexp.corpus.curation.seen import SeenTexts
from llmexp.corpus.curation.steps import Removed, Step
from llmexp.corpus.faults import BadData
from llmexp.corpus.records import CorpusWriter, Record, read_records, read_statistics, text_of
from llmexp.corpus.workers import Workers
from llmexp.store.machine import cores
from llmexp.track.progress import Progress

CHUNK_RECORDS = 512
CHUNK_CHARS = 1 << 20
"""A chunk goes from process to process. Its size must not depend on the number of workers."""

_REASON = "reason "

TOLD = 3
"""Reasons for removals that are told when curation ends; all of them are in ``stats.json``."""

_SPLITS_IN_ORDER = ("heldout", "train")
"""Held-out records come first: of a text on both sides, the held-out copy is the one kept."""


@dataclass
class Chunk:
    """Consecutive records of one split on their way through the steps."""

    split: str
    records: list[Record]
    removed: list[Record] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    keys: list[int | None] = field(default_factory=list)
    segment: int = 0

    def counter(self, step: str) -> Counter[str]:
        """The counts of one step."""
        return self.counts.setdefault(step, Counter())

    def remove(self, step: str, reason: str, record: Record) -> None:
        """Put a record, as it came to the step, among the removed ones."""
        self.removed.append({**record, "reason": f"{step}: {reason}", "removed_from": self.split})
        self.counter(step).update(
            {"removed": 1, "removed_characters": len(text_of(record)), f"{_REASON}{reason}": 1}
        )


@dataclass
class Segment:
    """Steps that look at single records, and the comparison that ends them, if one does."""

    steps: dict[str, Step]
    comparison: tuple[str, SeenTexts] | None = None


def segments_of(specs: dict[str, StepSpec], order: list[str]) -> list[Segment]:
    """The steps in their order, cut after each comparison of records."""
    segments = [Segment({})]
    for name in order:
        step = specs[name].build()
        if isinstance(step, SeenTexts):
            segments[-1].comparison = (name, step)
            segments.append(Segment({}))
        else:
            segments[-1].steps[name] = step
    return segments


_segments: list[Segment] = []
"""The steps of this worker process; set once by `_begin`."""


def _begin(specs: dict[str, StepSpec], order: list[str]) -> None:
    _segments[:] = segments_of(specs, order)


def _run_segment(chunk: Chunk) -> Chunk:
    """One segment's steps on one chunk, and the keys for the comparison behind them."""
    segment = _segments[chunk.segment]
    kept = []
    for record in chunk.records:
        passed = _through(segment.steps, record, chunk)
        if passed is not None:
            kept.append(passed)
    chunk.records = kept
    if segment.comparison:
        step = segment.comparison[1]
        chunk.keys = [step.key(record) if step.concerns(record) else None for record in kept]
    return chunk


def _through(steps: dict[str, Step], record: Record, chunk: Chunk) -> Record | None:
    for name, step in steps.items():
        if not step.concerns(record):
            continue
        counts = chunk.counter(name)
        counts["in"] += 1
        try:
            record = step.apply(record, counts)
        except Removed as removed:
            chunk.remove(name, str(removed), record)
            return None
    return record


def _compared(chunks: Iterator[Chunk], name: str, step: SeenTexts) -> Iterator[Chunk]:
    """Remove the records whose key came before, in the order of the corpus."""
    for chunk in chunks:
        keys = [key for key in chunk.keys if key is not None]
        seen = iter(step.seen(keys))
        chunk.counter(name)["in"] += len(keys)
        kept = []
        for record, key in zip(chunk.records, chunk.keys, strict=True):
            if key is not None and next(seen):
                chunk.remove(name, step.reason, record)
            else:
                kept.append(record)
        chunk.records, chunk.keys, chunk.segment = kept, [], chunk.segment + 1
        yield chunk


def _chunks(corpus: Path, census: Census) -> Iterator[Chunk]:
    """The corpus in chunks; ``census`` counts what is read."""
    for split in _SPLITS_IN_ORDER:
        records: list[Record] = []
        size = 0
        for record in read_records(corpus, split):
            census.add(split, record)
            records.append(record)
            size += len(text_of(record))
            if len(records) >= CHUNK_RECORDS or size >= CHUNK_CHARS:
                yield Chunk(split, records)
                records, size = [], 0
        if records:
            yield Chunk(split, records)


def curate(
    spec: CurationSpec,
    corpus: Path,
    out: Path,
    *,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = never,
    workers: int | None = None,
) -> dict[str, Any]:
    """Send the corpus at ``corpus`` through the steps into one at ``out``; the removed go to ``out/removed``.

    The output is the same, byte for byte, for any number of ``workers`` (default: one a core).

    Returns:
        the new corpus' ``stats.json``: what came in and what was kept, and for each step the
        records it saw, removed (by reason) and changed.

    Raises:
        BadData: the input is no corpus, or nothing of one side is left.
        llmexp.track.progress.Interrupted: ``should_stop`` said so.
    """
    before, after = Census(), Census()
    counts: dict[str, Counter[str]] = {name: Counter() for name in spec.order}
    segments = segments_of(spec.steps, spec.order)
    shown = progress or Progress(quiet=True)
    total = sum(read_statistics(corpus).get("documents", {}).values()) or None
    with (
        CorpusWriter(out, ("train", "heldout", "removed")) as writer,
        Workers(workers or cores(), _begin, (spec.steps, spec.order)) as pool,
        shown.task("curate", total=total, unit="documents") as task,
    ):
        stream = _chunks(corpus, before)
        for segment in segments:
            stream = pool.map(_run_segment, stream)
            if segment.comparison:
                stream = _compared(stream, *segment.comparison)
        done = 0
        for chunk in stream:
            stop_if(should_stop)
            _write(chunk, writer, after)
            for name, counter in chunk.counts.items():
                counts[name].update(counter)
            done += len(chunk.records) + len(chunk.removed)
            task.update(done, kept=f"{after.total / done:.0%}")
        if removed := _told(counts):
            shown.line(f"  removed: {removed}; curation=none keeps all")
        _check_left(before, after)
        statistics = {**after.summary(), "kept": _kept(before, after), "input": before.summary()}
        statistics["steps"] = {name: _step_summary(counts[name]) for name in spec.order}
        writer.statistics(statistics)
    return statistics


def _told(counts: dict[str, Counter[str]]) -> str:
    """The commonest reasons for which records were removed: ``23 words without letters, 3 duplicates``."""
    reasons: Counter[str] = Counter()
    for counter in counts.values():
        for key, n in counter.items():
            if key.startswith(_REASON):
                reasons[key.removeprefix(_REASON)] += n
    commonest = reasons.most_common(TOLD)
    rest = reasons.total() - sum(n for _, n in commonest)
    told = [f"{n:,} {reason}" for reason, n in commonest]
    return ", ".join(told + ([f"{rest:,} others"] if rest else []))


def _write(chunk: Chunk, writer: CorpusWriter, census: Census) -> None:
    for record in chunk.records:
        writer.write(chunk.split, record)
        census.add(chunk.split, record)
    for record in chunk.removed:
        writer.write("removed", record)


def _check_left(before: Census, after: Census) -> None:
    for split, words in (("train", "training"), ("heldout", "held-out")):
        if before.documents[split] and not after.documents[split]:
            raise BadData(
                f"curation removed all {before.documents[split]} {words} documents: "
                "see the rules in conf/curation, take curation=none, or hold out more (data.heldout)"
            )


def _kept(before: Census, after: Census) -> dict[str, Any]:
    """Shares of documents and characters that are left, in all and by kind."""
    old, new = before.summary()["kinds"], after.summary()["kinds"]
    shares = {
        kind: {what: round(new.get(kind, {}).get(what, 0) / max(1, old[kind][what]), 6) for what in old[kind]}
        for kind in old
    }
    return {
        "documents": round(after.total / max(1, before.total), 6),
        "characters": round(after.characters.total() / max(1, before.characters.total()), 6),
        "kinds": shares,
    }


def _step_summary(counts: Counter[str]) -> dict[str, Any]:
    fixed = {key: counts[key] for key in ("in", "removed", "removed_characters")}
    rest = {key: n for key, n in sorted(counts.items()) if n and key not in fixed}
    reasons = {key.removeprefix(_REASON): n for key, n in rest.items() if key.startswith(_REASON)}
    others = {key: n for key, n in rest.items() if not key.startswith(_REASON)}
    return {**fixed, "reasons": reasons, "counts": others}
