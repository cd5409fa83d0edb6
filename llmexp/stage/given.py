"""What a person's reference means: an artifact, a run or a stage of one, or a folder from elsewhere."""

from __future__ import annotations

from pathlib import Path

from llmexp.config.mistakes import UserError
from llmexp.model.folder import cached_folder, is_hub_name
from llmexp.stage.config import Need
from llmexp.stage.runs import RunPart, artifacts_of, find_part, last_with, name_of, part_at
from llmexp.store.artifact import MANIFEST, Artifact
from llmexp.store.errors import NoArtifact, StoreError
from llmexp.store.store import Store

FOLDERS = ("model", "tokenizer")
"""Kinds that a folder in Hugging Face's format can stand for, an export's among them."""


class WrongInput(UserError):
    """A reference that names nothing, or something of another kind."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}: {remedy}")


def meaning(reference: str, store: Store, runs: Path) -> Artifact | RunPart | Path:
    """What a reference names: a folder that is there, else an artifact's fingerprint, else a run's name.

    A path is returned for a folder that is no artifact's, no run's and no stage's.

    Raises:
        UserError: it names nothing, or several runs.
        Ambiguous: it is the start of several fingerprints.
        Damaged: it is an artifact whose manifest is broken.
    """
    folder = Path(reference).expanduser()
    if (folder / MANIFEST).is_file():
        return Artifact.load(folder)
    part = part_at(folder, runs)
    if part is not None:
        return part
    if folder.is_dir():
        return folder
    try:
        return store.resolve(reference)
    except NoArtifact:
        return find_part(reference, runs)


def find_given(reference: str, need: Need, store: Store, runs: Path) -> Artifact | Path:
    """The artifact, the newest fitting one of a run, or the folder of a model or tokenizer.

    No network is used: of what is on the Hub, only local copies are found (see `on_hub`).

    Raises:
        WrongInput: there is no such thing, or it is of another kind.
    """
    roots = ", ".join(map(str, store.roots))
    nothing = f"'{reference}' is no run, no artifact of {roots}, and no folder of a model or tokenizer"
    try:
        found = last(need, store, runs) if reference == "last" else meaning(reference, store, runs)
    except UserError as error:
        cached = cached_folder(reference) if on_hub(reference, need) else None
        if cached is not None:
            return cached
        raise WrongInput(f"{nothing} ({error})", "see `llmexp store list`") from error
    except StoreError as error:
        raise WrongInput(str(error), "see `llmexp store list`") from error
    if isinstance(found, RunPart):
        return _made_by(found, need, store, runs)
    if isinstance(found, Path):
        if need.kind in FOLDERS:
            return found.resolve()
        raise WrongInput(nothing, "see `llmexp status` and `llmexp store list`")
    if found.kind == "export" and need.kind in FOLDERS:
        return found.path
    if not need.accepts(found.kind):
        raise WrongInput(
            f"'{reference}' is of kind {found.kind}, and a {need.kind} is needed",
            f"see `llmexp store list {need.kind}`",
        )
    return found


def on_hub(reference: str, need: Need) -> bool:
    """Whether what is not found here may be a name on the Hub."""
    return need.kind in FOLDERS and is_hub_name(reference)


def last(need: Need, store: Store, runs: Path) -> RunPart:
    """What ``last`` means where something is needed: the newest run that has it."""
    kinds = ("model", need.kind) if need.accepts("model") else (need.kind,)
    return RunPart(last_with(kinds, store, runs))


def references(given: str, need: Need) -> list[str]:
    """The single references in what was given for a need."""
    return [part for part in given.split(",") if part] if need.many else [given]


def _made_by(part: RunPart, need: Need, store: Store, runs: Path) -> Artifact | Path:
    """The newest artifact that fits the need and that a run, or its one stage, made or found."""
    done = [one for name, one in artifacts_of(part.run_dir, store) if part.stage in (None, name)]
    made = [one for one in done if need.accepts(one.kind)]
    if made:
        return made[-1]
    # After the models: what a run exported says nothing that its model does not say better.
    exports = [one for one in done if one.kind == "export" and need.kind in FOLDERS]
    if exports:
        return exports[-1].path
    stage = f"stage '{part.stage}' of " if part.stage else ""
    raise WrongInput(
        f"{stage}run {name_of(part.run_dir, runs)} has no {need.kind} in the store", "see `llmexp status`"
    )
