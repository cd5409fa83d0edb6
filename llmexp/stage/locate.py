"""From a composition to fingerprints: given inputs are found, and source data is hashed."""

from __future__ import annotations

from pathlib import Path

from llmexp.config.mistakes import UserError
from llmexp.config.spec import as_data
from llmexp.corpus.faults import BadData
from llmexp.model.folder import ModelFolderError, find_folder
from llmexp.stage.config import Collect, Need, Pretrain, TrainingStage, TrainTokenizer
from llmexp.stage.context import External, Input
from llmexp.stage.given import WrongInput, find_given, on_hub, references
from llmexp.stage.graph import Composition, Node
from llmexp.stage.runs import PipelineRecord, part_at
from llmexp.store.errors import KeepsChanging
from llmexp.store.fingerprint import file_sha256, fingerprint, user_sources
from llmexp.store.store import Store


def locate(composition: Composition, store: Store, runs: Path) -> None:
    """Find given inputs and fill in the fingerprint of every stage. Reads source data once, with a cache.

    Raises:
        UserError: a given input does not exist, or is of another kind.
    """
    for node in composition.nodes.values():
        for need, reference in node.spec.inputs.items():
            declared = node.spec.needs[need]
            parts = references(reference, declared)
            key = f"{node.name}.inputs.{need}"
            found = [_given(part, declared, key, store, runs) for part in parts]
            node.given[need] = dict(zip(labels(parts), found, strict=True))
        node.data_hashes = _data_hashes(node, store)
        source = _sources(node) | node.data_hashes | _start(node, store, runs)
        node.fingerprint = _fingerprint(node, composition, source)
        if resumed := _resumed(node, runs):
            node.fingerprint = _fingerprint(node, composition, source | resumed)


def _fingerprint(node: Node, composition: Composition, source: dict[str, str]) -> str:
    return fingerprint(
        kind=node.spec.makes,
        stage=node.kind,
        version=node.spec.version,
        config=as_data(node.spec, result_only=True),
        inputs=input_fingerprints(node, composition),
        source=source,
    )


def input_fingerprints(node: Node, composition: Composition) -> dict[str, str | list[str]]:
    """The fingerprint, or fingerprints, of each need."""
    found: dict[str, str | list[str]] = {}
    for need, source in node.needs.items():
        if isinstance(source, list):
            found[need] = [composition.nodes[one].fingerprint for one in source]
        else:
            found[need] = composition.nodes[source].fingerprint
    for need, inputs in node.given.items():
        prints = [one.fingerprint for one in inputs.values()]
        found[need] = prints if node.spec.needs[need].many else prints[0]
    return found


def labels(references: list[str]) -> list[str]:
    """A short name for each reference, no two the same: the last part of its path, numbered if need be."""
    short = [Path(reference).name[:24] or reference[:24] for reference in references]
    found: list[str] = []
    for name in short:
        number = 1 + sum(other == name for other in short[: len(found)])
        label = name if number == 1 else f"{name}-{number}"
        while label in found:
            number += 1
            label = f"{name}-{number}"
        found.append(label)
    return found


def _given(reference: str, need: Need, key: str, store: Store, runs: Path) -> Input:
    """What ``key=reference`` names, known by its content."""
    try:
        found = find_given(reference, need, store, runs)
    except WrongInput as error:
        if not on_hub(reference, need):
            raise UserError(f"{key}: {error}") from error
        try:
            found = find_folder(reference)
        except ModelFolderError as absent:
            raise UserError(f"{key}: {absent}") from absent
    return External.at(need.kind, found, store.hasher) if isinstance(found, Path) else found


def check_given(node: Node, store: Store) -> None:
    """The folders that a person named for ``node`` are still what its fingerprint speaks of.

    For who is about to read them, perhaps hours after they were located.

    Raises:
        UserError: one changed meanwhile, or is gone.
    """
    for one in [node.start, *(one for given in node.given.values() for one in given.values())]:
        if not isinstance(one, External):
            continue
        try:
            there = External.at(one.kind, one.path, store.hasher).fingerprint
        except (OSError, KeepsChanging) as error:
            raise UserError(f"{node.name}: {error}. Run the same command again") from error
        if there != one.fingerprint:
            raise UserError(
                f"{node.name}: {one.path} changed since the command began. Run the same command again"
            )


def check_unchanged(node: Node, store: Store) -> None:
    """The files that a stage has read are still those that its fingerprint speaks of.

    Raises:
        UserError: they changed meanwhile: what was made of them must not bear that fingerprint.
    """
    try:
        if _data_hashes(node, store) == node.data_hashes:
            return
        cause = ""
    except UserError as error:
        cause = f" ({str(error).removeprefix(f'{node.name}: ')})"
    raise UserError(
        f"{node.name}: its source files changed while they were read{cause}. Run the same command again, "
        "once nothing writes to them"
    )


def _data_hashes(node: Node, store: Store) -> dict[str, str]:
    """Hashes of the files that a stage reads from outside the store.

    Raises:
        UserError: they are not there, change, or may not be read.
    """
    found: dict[str, list[str]] = {}
    try:
        if isinstance(node.spec, Collect):
            from llmexp.corpus.collect import source_paths

            found["data"] = source_paths(node.spec.data)
        if isinstance(node.spec, TrainTokenizer):
            found["tokenizer"] = node.spec.tokenizer.source_paths()
        return {what: store.hasher.content_hash(paths) for what, paths in found.items() if paths}
    except PermissionError as error:
        raise UserError(
            f"{node.name}: {error.filename or error} may not be read by this user: change its permissions, "
            "or name paths without it"
        ) from error
    except (BadData, FileNotFoundError, KeepsChanging) as error:
        raise UserError(f"{node.name}: {error}") from error


def _sources(node: Node) -> dict[str, str]:
    """A person's own packages by their hashes, and what is on the Hub by its commit.

    The spec gets that commit: a later push is not read under this one.
    """
    found = user_sources(as_data(node.spec))
    revision = None
    if isinstance(node.spec, Collect):
        from llmexp.corpus.collect import pin_revision

        revision = pin_revision(node.spec.data)
    if isinstance(node.spec, TrainTokenizer):
        from llmexp.tokenizer import imported

        revision = imported.pin_revision(node.spec.tokenizer)
    return found if revision is None else found | {"revision": revision}


def _start(node: Node, store: Store, runs: Path) -> dict[str, str]:
    """What ``model.init_from`` names counts by its content; the spec gets its folder.

    Of a name on the Hub that is the folder of the commit that was resolved.
    """
    if not isinstance(node.spec, Pretrain) or node.spec.model.init_from is None:
        return {}
    node.start = _given(node.spec.model.init_from, Need("model"), f"{node.name}.model.init_from", store, runs)
    node.spec.model.init_from = str(node.start.path)
    return {"init_from": node.start.fingerprint}


def _resumed(node: Node, runs: Path) -> dict[str, str]:
    """A checkpoint that ``trainer.resume`` names counts by its content; the spec gets its folder.

    One of a run that makes this very artifact does not count: to go on from it is what ``auto`` does,
    and gives what an uninterrupted run gives. ``node`` has the fingerprint that it has without.
    """
    if not isinstance(node.spec, TrainingStage) or node.spec.trainer.resume in ("auto", "never"):
        return {}
    from llmexp.train.checkpoint import MANIFEST
    from llmexp.train.resume import find_checkpoint

    checkpoint = find_checkpoint(Path(node.spec.trainer.resume)).path.absolute()
    node.spec.trainer.resume = str(checkpoint)
    part = part_at(checkpoint.parents[1], runs)
    if part is not None and part.stage is not None:
        made = PipelineRecord.read(part.run_dir).stages[part.stage]
        if made.fingerprint == node.fingerprint:
            return {}
    return {"resume": file_sha256(checkpoint / MANIFEST)}  # it holds the hashes of the other files
