"""The model that a person means, what it is, and the decoder itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.cli.places import Places
from llmexp.cli.subject import Pipeline, Step, Subject, of_run, subject_or_folder
from llmexp.config.mistakes import UserError
from llmexp.stage.runs import last_with
from llmexp.store.artifact import Artifact
from llmexp.store.lineage import lineage

if TYPE_CHECKING:
    from llmexp.model.config import ModelSpec
    from llmexp.model.decoder import Decoder
    from llmexp.tokenizer.tokenizer import Tokenizer

KINDS = ("model", "export")
"""Artifacts that hold a decoder and its tokenizer."""


@dataclass(frozen=True)
class FoundModel:
    """A model's folder, and what is known of it."""

    folder: Path
    label: str
    """``RUN/STAGE``, the artifact, or the folder."""
    stage: str = ""
    """Type of the stage that made it; empty when nobody wrote that down."""
    training: tuple[str, ...] = ()
    """A phrase for each training stage that it went through, the first one first."""


@dataclass(frozen=True)
class OpenModel:
    """A model that is ready to write."""

    found: FoundModel
    decoder: Decoder
    spec: ModelSpec
    tokenizer: Tokenizer

    @property
    def context_length(self) -> int:
        """Tokens of a prompt and its completion together, at most."""
        return self.spec.max_seq_len


def find_model(reference: str, places: Places) -> FoundModel:
    """The model that ``RUN``, ``RUN/STAGE``, ``last``, a fingerprint or a folder means.

    Raises:
        UserError: there is none, or several are meant.
        Damaged: a file of it is not what was written.
    """
    if reference == "last":
        found: Subject | Path = of_run(last_with(("model",), places.store, places.runs), places)
    else:
        found = subject_or_folder(reference, places)
    if isinstance(found, Path):
        if not any((found / name).is_file() for name in ("model.json", "config.json")):
            raise UserError(f"{found} is a folder without model.json or config.json: it holds no model")
        return FoundModel(found, str(found))
    step = _step(found, reference)
    artifact = step.artifact
    assert artifact is not None
    return FoundModel(artifact.folder(), step.label, step.stage, tuple(_training(artifact, places)))


def _models(run: Pipeline) -> list[Step]:
    return [s for s in run.steps.values() if s.artifact is not None and s.artifact.kind == "model"]


def _step(found: Pipeline | Step, reference: str) -> Step:
    """The step itself, or a run's last one that has a model."""
    steps = list(found.steps.values()) if isinstance(found, Pipeline) else [found]
    models = _models(found) if isinstance(found, Pipeline) else []
    if models:
        return models[-1]
    if len(steps) == 1 and steps[0].artifact is not None:
        if steps[0].artifact.kind in KINDS:
            return steps[0]
        raise UserError(f"'{reference}' is a {steps[0].artifact.kind}, not a model. See `llmexp store list`.")
    state = ", ".join(f"{step.label.rpartition('/')[2]} {step.link.status}" for step in steps if step.link)
    raise UserError(f"'{reference}' has no model{f' ({state})' if state else ''}. See `llmexp status`.")


def _training(artifact: Artifact, places: Places) -> Iterator[str]:
    """What the model learned, one phrase a training stage: ``pretrain on python_stdlib (1.2M tokens)``."""
    known = {one.fingerprint: one for one in places.store.list()} | {artifact.fingerprint: artifact}
    chain: list[dict[str, Any]] = [next(lineage([artifact.fingerprint], known))]
    while below := chain[-1]["inputs"].get("model"):
        chain.append(below[0])
    for node in reversed(chain):
        made = known.get(node["fingerprint"])
        if made is None or made.kind != "model":
            continue
        texts = {need: one for need, one in node["inputs"].items() if need not in ("model", "tokenizer")}
        sources = list(dict.fromkeys(name for tree in texts.values() for name in _sources(tree, known)))
        tokens = made.manifest.summary.get("tokens")
        yield made.manifest.stage + _on(sources) + (f" ({_count(tokens)} tokens)" if tokens else "")


def _sources(trees: list[dict[str, Any]], known: dict[str, Artifact]) -> Iterator[str]:
    """Names of the data below; a tokenizer's own data is no part of what a model learned."""
    for tree in trees:
        made = known.get(tree["fingerprint"])
        data = made.manifest.config.get("data") if made is not None else None
        if data:
            yield str(data.get("path") or _option(str(data.get("_target_", ""))))
        for need, below in tree["inputs"].items():
            if need != "tokenizer":
                yield from _sources(below, known)


def _option(target: str) -> str:
    """The name of the option that a spec is called after: ``PythonStdlibSpec`` is python_stdlib."""
    name = target.rpartition(".")[2].removesuffix("Spec").removesuffix("Data")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _on(sources: list[str]) -> str:
    return f" on {', '.join(sources)}" if sources else ""


def _count(number: float) -> str:
    from llmexp.track.progress import short

    return short(number)


def open_model(found: FoundModel, device: str) -> OpenModel:
    """Read the decoder and its tokenizer.

    Raises:
        UserError: there is no tokenizer, or one with more tokens than the model has rows.
        ModelFolderError: the folder cannot be used.
        MeshMistake: there is no such device.
    """
    from llmexp.model.io import load
    from llmexp.parallel.mesh import device_kind
    from llmexp.tokenizer.tokenizer import Tokenizer

    if not (found.folder / "tokenizer.json").is_file():
        raise UserError(f"{found.folder} holds no tokenizer.json: the model cannot read text without it")
    tokenizer = Tokenizer.load(found.folder)
    decoder, spec = load(found.folder, device=device_kind(device))
    rows = decoder.head_weight.shape[0]
    if tokenizer.vocab_size > rows:
        raise UserError(
            f"{found.folder}: the tokenizer has {tokenizer.vocab_size} tokens and the model rows for {rows}: "
            "they do not belong together"
        )
    return OpenModel(found, decoder, spec, tokenizer)
