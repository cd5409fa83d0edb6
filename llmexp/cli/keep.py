"""What runs refer to in the store, so that pruning leaves it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from llmexp.cli.places import Places
from llmexp.stage.runs import PIPELINE, PipelineRecord, Unfinished
from llmexp.store.errors import StoreError


def fingerprints_of_runs(runs: Iterable[Path], places: Places) -> set[str]:
    """Fingerprints of what ``runs``, and unfinished work anywhere, make, have made or were given."""
    keep: set[str] = set()
    for run_dir in {folder.absolute() for folder in [*runs, *_unfinished(places)]}:
        record = PipelineRecord.read(run_dir)
        keep |= {link.fingerprint for link in record.stages.values()}
        for link in record.stages.values():
            if link.run_dir:
                keep.update(_recorded_inputs(Path(link.run_dir)))
        keep.update(_given_inputs(record.overrides, places))
    return keep


def _unfinished(places: Places) -> Iterator[Path]:
    """Pipelines that were begun and not finished, also those whose folder was chosen freely."""
    for folder in Unfinished(places.store.root).all():
        yield from (one for one in (folder, folder.parent) if (one / PIPELINE).is_file())


def _recorded_inputs(run_dir: Path) -> Iterator[str]:
    """What a stage's run has read: a stage that is not done has no manifest that would tell."""
    written = run_dir / "artifacts" / "lineage.json"
    if written.is_file():
        for several in json.loads(written.read_text())["inputs"].values():
            yield from (one["fingerprint"] for one in several)


def _given_inputs(overrides: list[str], places: Places) -> Iterator[str]:
    """Artifacts that the command gave by ``inputs.NEED=…`` to stages that have not begun."""
    for line in overrides:
        key, _, value = line.partition("=")
        if "inputs" in key.lstrip("+").split("."):
            for part in value.strip("'\"[]").split(","):
                # A run, a Hugging Face folder and a name that is gone are no artifacts to keep.
                with contextlib.suppress(StoreError):
                    yield places.store.resolve(part.strip()).fingerprint
