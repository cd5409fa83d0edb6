"""Read and write a decoder's weights: our folder, and Hugging Face's in both directions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from llmexp.model.build import empty_decoder
from llmexp.model.config import ModelSpec, resolve_vocabulary
from llmexp.model.decoder import Decoder
from llmexp.model.families.base import Entry, Family, ModelFolderError, fitting_overrides
from llmexp.model.folder import (
    SPEC_FILE,
    WEIGHTS_FILE,
    find_folder,
    read_family,
    read_spec,
    weight_files,
    write_spec,
)


def save(model: Decoder, spec: ModelSpec, out: Path) -> None:
    """Write ``model.safetensors`` (our names, fp32) and ``model.json`` into the folder ``out``.

    A tied matrix is written once. The spec is written with its vocabulary filled in and without
    ``init_from``: the folder stands for itself.
    """
    written = dataclasses.replace(spec, vocab_size=model.head_weight.shape[0], init_from=None)
    tensors = {
        name: value.detach().to("cpu", torch.float32).contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(tensors, out / WEIGHTS_FILE, metadata={"format": "pt"})
    write_spec(written, out)


def load(
    path: str | Path,
    *,
    dropout: float | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> tuple[Decoder, ModelSpec]:
    """The model in our folder, in a Hugging Face folder, or of a Hub name, in evaluation mode.

    ``dropout`` replaces the stored one. Tensors are copied one by one, so that memory stays
    within the model plus one tensor.

    Raises:
        ModelFolderError: missing, unreadable or pickled files, missing or additional tensors,
            shapes that do not fit, or a feature that the decoder lacks; the message names it.
    """
    folder = find_folder(path)
    spec, kind = read_spec(folder), read_family(folder)
    if dropout is not None:
        spec.dropout = dropout
    model = empty_decoder(spec, device=device, dtype=dtype)
    entries = kind.entries(spec) if kind else [Entry(name, (name,)) for name in model.state_dict()]
    with _Weights(folder, kind) as weights:
        weights.refuse_additional(entries, spec)
        _fill(model, entries, weights)
    return model.eval(), spec


def start_from(
    path: str | Path,
    spec: ModelSpec,
    tokenizer_vocab_size: int | None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Decoder:
    """The model at ``path`` as the start of training ``spec``, whose dropout it gets.

    Raises:
        ModelFolderError: ``spec`` describes another model; names the overrides that would fit.
        ValueError: fewer rows than the tokenizer has tokens.
    """
    stored = read_spec(path)
    resolve_vocabulary(stored.vocab_size, tokenizer_vocab_size)
    overrides = fitting_overrides(spec, stored)
    if overrides:
        raise ModelFolderError(
            f"model.init_from={path} holds another model than the one configured; set {overrides}"
        )
    model, _ = load(path, dropout=spec.dropout, device=device, dtype=dtype)
    return model.train()


def foreign_tensors(model: Decoder, spec: ModelSpec, kind: Family) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values of ``model`` as the family ``kind`` stores them; one tensor lives at a time."""
    state = model.state_dict()
    for entry in kind.entries(spec):
        parts = [state[name] for name in entry.ours]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        yield entry.theirs, (joined.T if entry.transposed else joined).contiguous()


class _Weights:
    """The tensors of a folder, whichever file each lies in."""

    def __init__(self, folder: Path, kind: Family | None) -> None:
        self._folder, self._kind = folder, kind
        self._stack = contextlib.ExitStack()
        self._places: dict[str, safe_open] = {}

    def __enter__(self) -> _Weights:
        files = sorted(set(weight_files(self._folder).values()))
        for file in files:
            try:
                handle = self._stack.enter_context(safe_open(file, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise ModelFolderError(f"{file}: not a readable safetensors file ({error})") from error
            self._places |= dict.fromkeys(handle.keys(), handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> torch.Tensor:
        found = self._stored_name(name)
        if found is None:
            raise ModelFolderError(f"{self._folder}: the tensor {name} is missing")
        return self._places[found].get_tensor(found)

    def refuse_additional(self, entries: list[Entry], spec: ModelSpec) -> None:
        """Refuse tensors that no entry reads: the model has a part that ours does not."""
        known = {self._stored_name(entry.theirs) for entry in entries}
        ignored = self._kind.ignored if self._kind else ()
        for name in sorted(self._places.keys() - known):
            copy_of_embedding = spec.tie_embeddings and name == "lm_head.weight"
            if not copy_of_embedding and not name.endswith(ignored):
                raise ModelFolderError(f"{self._folder}: nothing in the model takes the tensor {name}")

    def _stored_name(self, name: str) -> str | None:
        short = name.removeprefix(self._kind.prefix) if self._kind else name
        return next((candidate for candidate in (name, short) if candidate in self._places), None)


@torch.no_grad()
def _fill(model: Decoder, entries: list[Entry], weights: _Weights) -> None:
    parameters = dict(model.named_parameters())
    for entry in entries:
        value = weights[entry.theirs]
        targets = [parameters.pop(name) for name in entry.ours]
        rows = [target.shape[0] for target in targets]
        stored = value.T if entry.transposed else value
        fits = stored.shape == (sum(rows), *targets[0].shape[1:])
        if not fits or not value.is_floating_point():
            raise ModelFolderError(
                f"the tensor {entry.theirs} is {tuple(value.shape)} {value.dtype}; "
                f"the config asks for {sum(rows)} output features of {tuple(targets[0].shape[1:])}"
            )
        for target, part in zip(targets, stored.split(rows), strict=True):
            target.copy_(part)
    if parameters:
        raise ModelFolderError(f"no tensor for {', '.join(sorted(parameters))}")


__all__ = [
    "SPEC_FILE",
    "WEIGHTS_FILE",
    "ModelFolderError",
    "foreign_tensors",
    "load",
    "read_spec",
    "save",
    "start_from",
]
