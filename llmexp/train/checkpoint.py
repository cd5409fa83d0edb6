"""Checkpoints on disk: safetensors and JSON, whole or not there at all, newest valid one first.

    <run>/checkpoints/step-00000100/
        model.safetensors optimizer.safetensors   named tensors
        state.json                                everything else
        manifest.json                             SHA-256 and size of each; written last

A folder without a manifest, or whose files are not what it says, is broken: it is skipped with a
warning and never deleted. No checkpoint lies above the step that its run has reached: what a run
leaves when it begins anew is kept under another name, and never taken for the newest. The tensor
files are what torch.distributed.checkpoint's Hugging Face storage reads too, and nothing in a
checkpoint is ever unpickled.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from llmexp.store.fingerprint import file_sha256
from llmexp.store.lease import fsync_path
from llmexp.train.errors import BrokenCheckpoint

log = logging.getLogger(__name__)

MANIFEST, STATE = "manifest.json", "state.json"
FORMAT = 1
_NAME = re.compile(r"(step|best)-(\d{8,})")
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files were found to be what its manifest says."""

    path: Path
    step: int
    """Steps that were done when it was saved."""
    state: dict[str, Any]

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The tensors of ``model`` or ``optimizer``, on the CPU."""
        from safetensors.torch import load_file

        # Not mapped: the file may be removed, or lie on another machine, while the tensors are in use.
        return load_file(self.path / f"{group}.safetensors", backend="pread")


class Checkpoints:
    """The checkpoints of one run, written by one process."""

    def __init__(self, folder: Path, *, keep: int, guard: Callable[[], None] = lambda: None) -> None:
        """``keep``: newest ones that stay. ``guard`` raises when another process owns the run by now."""
        self.folder, self._keep, self._guard = folder, keep, guard

    def clean(self) -> None:
        """Remove what a killed process left unfinished. Only the process that owns the run may."""
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path)

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        state: dict[str, Any],
        kind: str = "step",
    ) -> Path:
        """Write a checkpoint and return its folder; older ones beyond ``keep`` are removed.

        Best weights stay while a checkpoint that stays has none better.

        ``tensors``: by group. ``kind``: ``step``, or ``best`` for the best weights so far.

        Raises:
            OSError: it could not be written (disk full …); nothing is left of it and the ones
                before are as they were.
        """
        final = self.path(kind, step)
        temporary = self.folder / f"{_UNFINISHED}{final.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            _write_files(temporary, step, tensors, state)
            self._guard()
            self._make_way(final)
            temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_path(self.folder)
        self._prune()
        return final

    def path(self, kind: str, step: int) -> Path:
        """Where the checkpoint of ``step`` lies."""
        return self.folder / f"{kind}-{step:08d}"

    def newest(self) -> Checkpoint | None:
        """The newest valid one; each broken one that is newer is warned about."""
        for path in self._newest_first("step").values():
            try:
                return read_checkpoint(path)
            except BrokenCheckpoint as error:
                log.warning("%s; it is kept and skipped", error)
        return None

    def go_back(self, step: int) -> None:
        """Clear the way above ``step``, at which the run now begins or goes on.

        There lie the good checkpoints that a run leaves when it begins anew, and broken ones: both
        are kept under another name. Best weights above a step that is gone back to are removed,
        since the steps to them come once more.
        """
        self._guard()
        for kind in ("step", "best"):
            for other, path in self._newest_first(kind).items():
                if other <= step:
                    break
                if kind == "best" and step > 0:
                    _remove(path)
                    log.warning("the run goes back to step %d: %s is removed", step, path)
                else:
                    aside = self._set_aside(path)
                    log.warning("the run goes on from step %d: %s is kept as %s", step, path, aside.name)

    def _newest_first(self, kind: str) -> dict[int, Path]:
        found = {int(m[2]): p for p in self.folder.glob(f"{kind}-*") if (m := _NAME.fullmatch(p.name))}
        return dict(sorted(found.items(), reverse=True))

    def _make_way(self, final: Path) -> None:
        """Move aside what has the name: a broken checkpoint is kept, an older valid one is not needed."""
        if not final.exists():
            return
        try:
            read_checkpoint(final)
        except BrokenCheckpoint:
            self._set_aside(final)
        else:
            _remove(final)

    def _set_aside(self, path: Path) -> Path:
        n = 1
        while (aside := self.folder / f"aside-{path.name}-{n}").exists():
            n += 1
        return path.rename(aside)

    def _prune(self) -> None:
        steps, best = self._whole("step"), self._whole("best")
        for path in list(steps.values())[self._keep :]:
            _remove(path)
        # A run that goes on from an older checkpoint needs the best weights of that time.
        ends = [*list(steps)[: self._keep], max(best, default=0)]
        needed = {max((b for b in best if b <= end), default=0) for end in ends}
        for step in best.keys() - needed:
            _remove(best[step])

    def _whole(self, kind: str) -> dict[int, Path]:
        return {step: p for step, p in self._newest_first(kind).items() if (p / MANIFEST).exists()}


def read_checkpoint(path: Path) -> Checkpoint:
    """Check every file of the checkpoint at ``path`` against its manifest and read its state.

    Raises:
        BrokenCheckpoint: a file is missing, cut off or changed; the error names it.
    """
    manifest = _read_json(path / MANIFEST)
    try:
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
        step, version = int(manifest["step"]), manifest["format"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BrokenCheckpoint(path / MANIFEST, "is no manifest of a checkpoint") from error
    if version != FORMAT:
        raise BrokenCheckpoint(
            path / MANIFEST, f"has format {version}, and this version of llmexp reads {FORMAT}"
        )
    for name, (size, digest) in files.items():
        file = path / name
        if Path(name).name != name or not file.is_file():
            raise BrokenCheckpoint(file, "is missing")
        if file.stat().st_size != size:
            raise BrokenCheckpoint(file, f"has {file.stat().st_size} bytes, not {size}: it is cut off")
        if file_sha256(file) != digest:
            raise BrokenCheckpoint(file, "is not what was written (its SHA-256 differs)")
    if STATE not in files:
        raise BrokenCheckpoint(path / STATE, "is missing")
    return Checkpoint(path, step, _read_json(path / STATE))


def _write_files(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]
) -> None:
    for group, named in tensors.items():
        _write_tensors(folder / f"{group}.safetensors", named)
    _write_json(folder / STATE, state)
    files = {p.name: {"bytes": p.stat().st_size, "sha256": file_sha256(p)} for p in _files(folder)}
    _write_json(folder / MANIFEST, {"format": FORMAT, "step": step, "files": files})
    fsync_path(folder)


def _write_tensors(path: Path, named: Mapping[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in named.items()}, path)
    except SafetensorError as error:  # how it reports that the disk is full
        raise OSError(f"{path} cannot be written: {error}") from error
    fsync_path(path)


def _write_json(path: Path, value: object) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BrokenCheckpoint(path, "is missing") from error
    except (NotADirectoryError, ValueError) as error:
        raise BrokenCheckpoint(path, "cannot be read as JSON") from error


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(p for p in folder.iterdir() if p.is_file())


def _remove(path: Path) -> None:
    """Out of sight first: a half-removed folder must not look like a broken checkpoint."""
    hidden = path.with_name(f"{_UNFINISHED}removed-{path.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)
