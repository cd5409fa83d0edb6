"""Artifacts that a person gives: which stage of a pipeline takes each, and in whose place it stands."""

from __future__ import annotations

import dataclasses
from typing import Any

from llmexp.config.lines import Line, with_key, with_value
from llmexp.config.spec import Mistake, Spec
from llmexp.config.typed import field_types

START = "model.init_from"
"""The way to start any training stage; a stage without a model of its own takes it as its input."""

START_INPUT = "inputs.model"
"""What ``START`` means there."""


@dataclasses.dataclass
class Entry:
    """One stage of a pipeline."""

    name: str
    stage: str
    """Stage type."""
    needs: dict[str, Any]
    """Need to the stage that makes it, or a list of stages."""
    own: list[Line]
    """Its own override lines."""
    spec: type[Spec] | None
    """The spec class of its type; None where there is no such type."""

    @property
    def declared(self) -> dict[str, Any]:
        """What its type needs."""
        return getattr(self.spec, "needs", {})

    def makers(self, need: str) -> list[str]:
        """The stages that make what it needs."""
        made = self.needs.get(need, [])
        return [str(one) for one in made] if isinstance(made, list) else [str(made)]


@dataclasses.dataclass
class Placed:
    """Lines with each given artifact at the stages that take it."""

    lines: list[Line]
    stand_ins: list[tuple[str, Line]]
    """Lines beyond what was written, each with its stage."""
    given: set[tuple[str, str]]
    """(stage, need) of what is given."""
    mistakes: list[Mistake]


def placed(entries: dict[str, Entry], lines: list[Line], target: str | None) -> Placed:
    """Find the stage, or stages, that each line about inputs means.

    An artifact that is given in place of the stage that makes it stands in for that stage wherever
    one artifact of it is needed: ``stage=sft inputs.model=X`` also gives X to the stage that takes
    its tokenizer from the model. Of several that are given (``stage=evaluate inputs.models=A,B``) the
    first does so. Lists of artifacts (``evaluate``'s models) keep naming the stage.
    """
    found: list[Line] = []
    mistakes: list[Mistake] = []
    for line in lines:
        takers = _takers(line, entries, target)
        wrong = _ambiguous(line, takers)
        mistakes += wrong
        if not wrong:
            found += [with_key(line, f"{taker.name}.{key}") for taker, key in takers] or [line]
    for entry in entries.values():
        entry.own = [with_key(x, START_INPUT) if _starts(entry, x.key) else x for x in entry.own]
    given = {
        (name, need): line
        for entry in entries.values()
        for line in entry.own
        for name, need in _gives(f"{entry.name}.{line.key}", line, entries)
    }
    given |= {place: line for line in found for place in _gives(line.key, line, entries)}
    stand_ins = _stand_ins(entries, given)
    return Placed(
        found, [(name, line) for (name, _), line in stand_ins.items()], {*given, *stand_ins}, mistakes
    )


def _starts(entry: Entry, key: str) -> bool:
    """Whether ``key`` is the start of a training stage that takes its model as an input."""
    spec = entry.spec
    return (
        key == START
        and spec is not None
        and getattr(spec, "trains", False)
        and "model" in entry.declared
        and "model" not in field_types(spec)
    )


def _takers(line: Line, entries: dict[str, Entry], target: str | None) -> list[tuple[Entry, str]]:
    """The stages, each with its own key, that a line about inputs means; none where it is no such line."""
    name, _, rest = line.key.partition(".")
    if name in entries:
        return [(entries[name], START_INPUT)] if _starts(entries[name], rest) else []
    if line.key == START and target is not None and _starts(entries[target], START):
        return [(entries[target], START_INPUT)]
    if name != "inputs" or not rest or "." in rest:
        return []
    if target is not None and rest in entries[target].declared:
        return [(entries[target], line.key)]
    takers = [entry for entry in entries.values() if rest in entry.declared]
    # Where nothing makes it, it can only be meant for those.
    takers = [entry for entry in takers if rest not in entry.needs] or takers
    return [(entry, line.key) for entry in takers]


def _ambiguous(line: Line, takers: list[tuple[Entry, str]]) -> list[Mistake]:
    """A plain line that would replace the artifacts of several stages by one."""
    need = line.key.partition(".")[2]
    makers = {",".join(entry.makers(need)) for entry, _ in takers}
    if len(makers) < 2:
        return []
    told = ", ".join(f"{entry.name} from {' and '.join(entry.makers(need))}" for entry, _ in takers)
    remedy = "say which: " + ", ".join(f"{entry.name}.inputs.{need}=…" for entry, _ in takers)
    return [Mistake(line.key, f"several stages need a different {need} ({told})", remedy, line.source)]


def _gives(key: str, line: Line, entries: dict[str, Entry]) -> list[tuple[str, str]]:
    """The (stage, need) that a line with this whole key gives."""
    parts = key.split(".")
    if len(parts) != 3 or parts[1] != "inputs" or parts[0] not in entries or line.override.is_delete():
        return []
    return [(parts[0], parts[2])]


def _stand_ins(entries: dict[str, Entry], given: dict[tuple[str, str], Line]) -> dict[tuple[str, str], Line]:
    """Lines that give an artifact also to the others that need the stage in whose place it stands."""
    found: dict[tuple[str, str], Line] = {}
    for (name, need), line in given.items():
        makers = entries[name].makers(need)
        if len(makers) != 1 or need not in entries[name].declared:
            continue
        first = _first(line.override.value())
        kind = entries[name].declared[need].kind
        for other in entries.values():
            for place in other.needs:
                declared = other.declared[place]
                same = other.makers(place) == makers and not isinstance(other.needs[place], list)
                if same and declared.accepts(kind) and (other.name, place) not in given:
                    found[other.name, place] = with_value(line, f"{other.name}.inputs.{place}", first)
    return found


def _first(value: Any) -> str:
    """The first reference of a list, or of several separated by commas."""
    return str(next(iter(value), "")) if isinstance(value, list) else str(value).split(",")[0]
