"""What a person's reference to an input means: an artifact, what a run made, or a folder from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from llmexp.config.mistakes import UserError
from llmexp.stage.config import Need
from llmexp.stage.runs import PIPELINE, artifacts_of, find_run
from llmexp.store.artifact import MANIFEST, Artifact
from llmexp.store.errors import NoArtifact, StoreError
from llmexp.store.store import Store

FINGERPRINT_START = re.compile(r"[0-9a-f]{1,32}")


class WrongInput(UserError):
    """A reference that names nothing, or something of another kind."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}: {remedy}")


def find_given(reference: str, need: Need, store: Store, runs: Path) -> Artifact | Path:
    """The folder of a model or tokenizer, the artifact, or the newest fitting one of a run, in this order.

    Raises:
        WrongInput: there is no such thing, or it is of another kind.
    """
    folder = Path(reference).expanduser()
    if need.kind in ("model", "tokenizer") and _from_elsewhere(folder):
        return folder.resolve()
    made = None if FINGERPRINT_START.fullmatch(reference) else _of_run(reference, need, store, runs)
    if made is not None:
        return made
    try:
        artifact = store.resolve(reference)
    except NoArtifact:
        made = _of_run(reference, need, store, runs)  # runs have short hexadecimal names too
        if made is not None:
            return made
        raise WrongInput(
            f"'{reference}' is no run, no artifact of {', '.join(map(str, store.roots))}, and no folder of "
            "a model or tokenizer",
            "see `llmexp status` and `llmexp store list`",
        ) from None
    except StoreError as error:
        raise WrongInput(str(error), "see `llmexp store list`") from error
    if not need.accepts(artifact.kind):
        raise WrongInput(
            f"'{reference}' is a {artifact.kind}, and a {need.kind} is needed",
            f"see `llmexp store list {need.kind}`",
        )
    return artifact


def _from_elsewhere(folder: Path) -> bool:
    """Whether ``folder`` is there, and neither an artifact nor the folder of a run or of its stage."""
    ours = (MANIFEST, PIPELINE, "run.json")
    return folder.is_dir() and not any((folder / name).is_file() for name in ours)


def references(given: str, need: Need) -> list[str]:
    """The single references in what was given for a need."""
    return [part for part in given.split(",") if part] if need.many else [given]


def _of_run(reference: str, need: Need, store: Store, runs: Path) -> Artifact | None:
    """The newest artifact of a kind in ``RUN`` (a run's name or folder), or of one stage in ``RUN/STAGE``."""
    head, _, stage = reference.rpartition("/")
    for run, only in ((reference, ""), (head, stage)):
        try:
            folder = find_run(run, runs) if run else None
        except UserError:
            continue
        made = (
            [a for name, a in artifacts_of(folder, store) if need.accepts(a.kind) and only in ("", name)]
            if folder
            else []
        )
        if made:
            return made[-1]
    return None
