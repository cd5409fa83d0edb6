"""Mistakes found in a composition: collected, worded and raised together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from hydra.errors import CompactHydraException

from llmexp.config.spec import Mistake


class CompositionError(CompactHydraException):  # type: ignore[misc]
    """All mistakes of one composition. A person can fix each of them; exit code 2."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = list(dict.fromkeys(mistakes))
        super().__init__(render(self.mistakes))


class UserError(Exception):
    """A person's mistake outside the config tree (a missing run, a wrong flag); exit code 2."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """``Did you mean 'x'?``, or an empty string when nothing is near."""
    options = sorted(set(candidates))
    last = {option.rpartition(".")[2]: option for option in options}
    found = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    if not found:
        tails = difflib.get_close_matches(name.rpartition(".")[2], list(last), n=1, cutoff=0.7)
        found = [last[tail] for tail in tails]
    return f"Did you mean '{found[0]}'?" if found else ""


def nearest_key(key: str, known: Iterable[str]) -> str:
    """What to do about a config key that does not exist, given the paths of all values there are.

    The same or a near name in the same node, then the same name elsewhere, then what the node has,
    then anything near.
    """
    paths = {path for path in known if not path.endswith("_target_")}
    parent, _, last = key.rpartition(".")
    start = f"{parent}." if parent else ""
    siblings = {path[len(start) :].split(".")[0] for path in paths if path.startswith(start)}
    near = difflib.get_close_matches(last, siblings, n=1, cutoff=0.6)
    if near:
        return f"Did you mean '{start}{near[0]}'?"
    elsewhere = sorted(path for path in paths if path.rpartition(".")[2] == last)
    if elsewhere and not last.isdigit():
        return f"Did you mean '{elsewhere[0]}'?"
    if parent and siblings:
        return f"'{parent}' has: {choices(siblings)}"
    return nearest(key, paths)


def choices(options: Iterable[str], limit: int = 12) -> str:
    """A short list of what may be chosen."""
    names = sorted(options)
    shown = ", ".join(names[:limit])
    return shown + (f", … ({len(names)} in all)" if len(names) > limit else "")


def render(mistakes: list[Mistake]) -> str:
    """The text a person reads: one block a mistake."""
    count = len(mistakes)
    lines = [f"{count} mistake{'s' if count != 1 else ''} in this configuration:"]
    for mistake in mistakes:
        lines.append(f"\n  {mistake.path or _nowhere(mistake)}: {mistake.problem}")
        if mistake.source:
            lines.append(f"      from: {mistake.source}")
        if mistake.remedy:
            lines.append(f"      fix:  {mistake.remedy}")
    return "\n".join(lines)


def _nowhere(mistake: Mistake) -> str:
    """What stands where a config path would, of a line or a file that could not be read at all."""
    return "(command line)" if mistake.source.startswith("override") else "(configuration)"
