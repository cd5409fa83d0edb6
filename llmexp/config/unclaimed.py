"""Plain lines that no stage of a composition has: what to say about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from llmexp.config.lines import Line
from llmexp.config.mistakes import choices, nearest, nearest_key
from llmexp.config.spec import Mistake

if TYPE_CHECKING:
    from llmexp.config.pipeline import Pipeline

REFERENCE = "llmexp config lists every group and key"


def no_such_key(key: str, known: Iterable[str]) -> str:
    """What to do about a key that does not exist, given the paths of all values there are."""
    parent, _, last = key.rpartition(".")
    if last == "_target_":
        return f"choose an option: {parent}=OPTION; or give the whole node: {parent}={{_target_: …, …}}"
    return nearest_key(key, known) or REFERENCE


def unclaimed(
    line: Line,
    pipeline: Pipeline,
    known: Mapping[str, set[str]],
    *,
    is_group: bool,
    stage_types: list[str],
) -> Mistake:
    """The mistake in a line that nobody takes; ``known`` holds the paths of all values, by stage."""
    entries, here, key = pipeline.entries, ", ".join(pipeline.entries), line.key
    first, _, rest = key.partition(".")
    every = set().union(*known.values())
    if first == "inputs":
        needs = {need for entry in entries.values() for need in entry.declared}
        problem = f"no stage here ({here}) needs a '{rest}'"
        remedy = nearest(rest, needs) or f"they need: {choices(needs)}"
    elif is_group:
        problem = f"no stage here ({here}) has the group '{key}'"
        remedy = "see which stage has it: llmexp config"
    elif not rest or first in {path.partition(".")[0] for path in every}:
        problem = f"no stage here ({here}) has '{key}'"
        remedy = no_such_key(key, every)
    elif first in pipeline.spared:
        problem = f"stage '{first}' is not run, since what it makes is given"
        remedy = "remove this line, or the inputs that are given"
    elif first in stage_types:
        problem = f"'{first}' is no stage of this pipeline ({here})"
        remedy = f"name one that is; stage={first} runs that stage"
    else:
        problem = f"'{first}' is neither a stage ({here}) nor a group of one"
        prefixed = {f"{name}.{path}" for name, paths in known.items() for path in paths}
        remedy = nearest(first, {p.partition(".")[0] for p in every} | set(entries)) and nearest(
            key, prefixed | every
        )
        remedy = remedy or (f"Did you mean '{rest}'?" if rest in every else REFERENCE)
    return Mistake(key, problem, remedy, line.source)
