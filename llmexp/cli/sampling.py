"""The flags of verbs that sample from a model, made from the spec of sampling."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from typing import Any

from llmexp.config.mistakes import UserError
from llmexp.config.spec import settings
from llmexp.config.typed import field_types
from llmexp.rollout.config import SamplingSpec
from llmexp.train.config import Device

_SIGNS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def add_sampling(made: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add a flag for each setting of sampling, a seed and a device; ``defaults`` replace the spec's."""
    kinds = field_types(SamplingSpec)
    for field in settings(SamplingSpec):
        unit = f" [{field.metadata['unit']}]" if field.metadata["unit"] else ""
        made.add_argument(
            _flag(field.name),
            type=kinds[field.name],
            default=defaults.get(field.name, field.default),
            metavar="N" if kinds[field.name] is int else "X",
            help=f"{field.metadata['help']}{unit} (default: %(default)s)",
        )
    made.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the same seed gives the same text (default: 0)"
    )
    made.add_argument(
        "--device",
        choices=[device.value for device in Device],
        default=Device.auto.value,
        help="where to compute; auto: a GPU if there is one",
    )


def sampling_of(given: argparse.Namespace) -> SamplingSpec:
    """The sampling that a command line asks for.

    Raises:
        UserError: a value is out of range; names the flag and the range.
    """
    spec = SamplingSpec(**{field.name: getattr(given, field.name) for field in settings(SamplingSpec)})
    for field in settings(spec):
        _check(field, getattr(spec, field.name))
    return spec


def refuse_settings(prompts: list[str]) -> None:
    """Tell a setting that was written as an override from a prompt.

    Raises:
        UserError: a prompt is ``temperature=0.5`` or the like; names the flag.
    """
    names = {field.name for field in settings(SamplingSpec)} | {"seed", "device"}
    for prompt in prompts:
        name, _, value = prompt.partition("=")
        if name.replace("-", "_") in names and re.fullmatch(r"[\w.+-]+", value):
            raise UserError(
                f"'{prompt}' would be a prompt, and settings are flags here: write {_flag(name)} {value}; "
                "if it is a prompt, give it by --file"
            )


def _check(field: dataclasses.Field[Any], value: float) -> None:
    bounds = {name: bound for name, bound in field.metadata["bounds"].items() if bound is not None}
    holds = {
        "ge": lambda bound: value >= bound,
        "gt": lambda bound: value > bound,
        "le": lambda bound: value <= bound,
        "lt": lambda bound: value < bound,
    }
    if not math.isfinite(value) or not all(holds[name](bound) for name, bound in bounds.items()):
        span = " and ".join(f"{_SIGNS[name]} {bound:g}" for name, bound in bounds.items())
        raise UserError(f"{_flag(field.name)} {value:g} is out of range: give a value {span}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
