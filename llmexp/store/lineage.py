"""What artifacts are made from, as their manifests say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from llmexp.store.artifact import Artifact


def lineage(
    fingerprints: list[str], known: dict[str, Artifact], above: tuple[str, ...] = ()
) -> Iterator[dict[str, Any]]:
    """What artifacts are made from: ``{fingerprint, kind, stage, run_id, inputs: {need: [the same]}}``."""
    for fingerprint in fingerprints:
        artifact = known.get(fingerprint)
        if artifact is None or fingerprint in above:
            yield {"fingerprint": fingerprint, "kind": "", "stage": "", "run_id": "", "inputs": {}}
            continue
        manifest = artifact.manifest
        inputs = {
            need: list(lineage([one] if isinstance(one, str) else list(one), known, (*above, fingerprint)))
            for need, one in manifest.inputs.items()
        }
        yield {
            "fingerprint": fingerprint,
            "kind": artifact.kind,
            "stage": manifest.stage,
            "run_id": manifest.run_id,
            "inputs": inputs,
        }


def chain(trees: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything in trees of `lineage`, each artifact once and after what it is made from."""
    found: dict[str, dict[str, Any]] = {}
    for tree in trees:
        below = chain(one for several in tree["inputs"].values() for one in several)
        for one in [*below, tree]:
            found.setdefault(one["fingerprint"], one)
    return list(found.values())
