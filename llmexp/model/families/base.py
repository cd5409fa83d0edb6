"""What a family's mapping consists of. Imports no torch."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import llmexp.model.families
from llmexp.config.spec import settings
from llmexp.model.config import ModelSpec

TRAINING_ONLY = ("dropout", "init_std", "init_from")
"""Fields of a model's spec that do not change what its weights compute."""

_NEUTRAL = frozenset(
    (
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "is_encoder_decoder",
        "label2id",
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    )
)
"""Keys that do not change what a decoder computes."""


class ModelFolderError(ValueError):
    """A model folder that cannot be used; the message says which part, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of a Hugging Face checkpoint and the parameters of ours that it holds."""

    theirs: str
    ours: tuple[str, ...]
    """Several: theirs holds them one after another along our first dimension (output features)."""
    transposed: bool = False
    """Theirs is stored as (in, out), ours as (out, in)."""


@dataclasses.dataclass(frozen=True)
class Family:
    """How a family's config and tensors map to ours."""

    architecture: str
    """The class that ``transformers`` builds."""
    prefix: str
    """Start of their names that checkpoints of the bare model leave out (``model.``)."""
    spec_from: Callable[[ConfigReader], ModelSpec]
    config_from: Callable[[ModelSpec], dict[str, Any]]
    entries: Callable[[ModelSpec], list[Entry]]
    ignored: tuple[str, ...] = ()
    """Ends of tensor names that hold nothing learned (masks, frequencies)."""


class ConfigReader:
    """Reads a ``config.json`` key by key, so that a key nobody understood is refused by name."""

    def __init__(self, config: dict[str, Any], where: str) -> None:
        self._left = dict(config)
        self._where = where

    def take(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, or ``default`` when the config does not say."""
        value = self._left.pop(key, None)
        return default if value is None else value

    def need(self, key: str) -> Any:
        """The value of ``key``, which must be there."""
        value = self._left.pop(key, None)
        if value is None:
            raise ModelFolderError(f"{self._where}: '{key}' is missing")
        return value

    def only(self, key: str, *allowed: Any) -> None:
        """Take ``key``, which if given must have one of the ``allowed`` values."""
        value = self.take(key, allowed[0])
        if value not in allowed:
            self.refuse(key, value)

    def refuse(self, key: str, value: Any) -> None:
        """Say that the model asks for something that the decoder does not have."""
        raise ModelFolderError(
            f"{self._where}: {key}={value!r} asks for a feature that llmexp does not have; "
            "the model would compute something else, so it is not loaded"
        )

    def skip(self, *keys: str) -> None:
        """Drop keys that do not change what a decoder computes."""
        for key in keys:
            self._left.pop(key, None)

    def finish(self) -> None:
        """Refuse what is left, unless it is off or known not to matter."""
        for key, value in self._left.items():
            if key not in _NEUTRAL and value not in (None, False, {}, []):
                self.refuse(key, value)


def family_names() -> list[str]:
    """The model types that can be read and written."""
    modules = pkgutil.iter_modules(llmexp.model.families.__path__)
    return sorted(module.name for module in modules if module.name != "base")


def family(model_type: str) -> Family:
    """The family of a config's ``model_type``.

    Raises:
        ModelFolderError: there is none.
    """
    if model_type not in family_names():
        known = ", ".join(family_names())
        raise ModelFolderError(f"model_type={model_type!r} is no family that llmexp has ({known})")
    return importlib.import_module(f"llmexp.model.families.{model_type}").FAMILY


def family_for(spec: ModelSpec) -> tuple[str, Family]:
    """The first family that can express ``spec`` without loss.

    Raises:
        ModelFolderError: none can; names the fields that stand in the way.
    """
    lost: dict[str, list[str]] = {}
    for name in family_names():
        candidate = family(name)
        if spec.d_model % spec.n_heads:
            # transformers refuses such a config in every family here, whatever head_dim says.
            lost[name] = ["n_heads"]
            continue
        config = candidate.config_from(spec)
        lost[name] = differing(spec, candidate.spec_from(ConfigReader(config, name)))
        if not lost[name]:
            return name, candidate
    reasons = "; ".join(f"{name} has another {', '.join(fields)}" for name, fields in lost.items())
    raise ModelFolderError(f"no Hugging Face family can express this model: {reasons}")


def differing(one: ModelSpec, other: ModelSpec) -> list[str]:
    """Names of the fields in which two models compute differently, ``null`` resolved."""
    names = [f.name for f in settings(one) if f.name not in TRAINING_ONLY]
    first, second = _resolved(one), _resolved(other)
    return [name for name in names if first.get(name) != second.get(name)]


def fitting_overrides(wanted: ModelSpec, stored: ModelSpec) -> str:
    """The override lines that make ``wanted`` the model that is ``stored``; empty where it is."""
    if wanted.vocab_size is None:
        wanted = dataclasses.replace(wanted, vocab_size=stored.vocab_size)
    return " ".join(f"model.{name}={_override(getattr(stored, name))}" for name in differing(wanted, stored))


def _override(value: object) -> object:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


def _resolved(spec: ModelSpec) -> dict[str, Any]:
    values = spec.values() | {"n_kv_heads": spec.key_heads, "head_dim": spec.width_of_head}
    rotary = [name for name in values if name.startswith("rope_")]
    if spec.position != "rope":
        unused = rotary
    elif spec.rope_scaling == "none":
        unused = [name for name in rotary if name not in ("rope_theta", "rope_scaling")]
    else:
        unused = []
    return {name: value for name, value in values.items() if name not in unused}
