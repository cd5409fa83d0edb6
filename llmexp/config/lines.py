"""Override lines: parsed one by one with Hydra's grammar, and sent to the root or to stages."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from llmexp.config.mistakes import choices, nearest
from llmexp.config.spec import Mistake

HYDRA_KEYS = (
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.job.name",
    "hydra.job.num",
    "hydra.job.id",
    "hydra.searchpath",
    "hydra.verbose",
)
"""What a YAML or an override may set of Hydra's own node: it can name callables, so no more than this."""


def is_settable(path: str) -> bool:
    """Whether a path below Hydra's node is one of ``HYDRA_KEYS``, or an element of one."""
    return any(path == key or path.startswith(key + ".") for key in HYDRA_KEYS)


PIPELINE, EXPERIMENT, COMMAND = range(3)
"""Layers of override lines: those of a later layer win, whether they name a stage or not."""


@dataclasses.dataclass(frozen=True)
class Line:
    """One override and the place where it was written."""

    override: Override
    source: str
    layer: int = COMMAND

    @property
    def key(self) -> str:
        """The key or group, without sign and package."""
        return str(self.override.key_or_group)

    @property
    def text(self) -> str:
        """The line as it was written."""
        return str(self.override.input_line)


def parse_lines(
    lines: Iterable[str], source: str | None, mistakes: list[Mistake], layer: int = COMMAND
) -> list[Line]:
    """Parse override strings; what does not parse becomes a mistake that shows the quoted form."""
    parser = OverridesParser.create()
    parsed = []
    for line in lines:
        where = source or f"override {line}"
        try:
            parsed.append(Line(parser.parse_override(str(line)), where, layer))
        except HydraException as error:
            remedy = _parse_remedy(str(line), parser, error)
            mistakes.append(Mistake("", f"'{line}' is not an override", remedy, where))
    return parsed


def _parse_remedy(line: str, parser: OverridesParser, error: HydraException) -> str:
    key, equals, value = line.partition("=")
    if not equals:
        return "write key=value; a list of what can be set: llmexp config"
    in_quotes = f"{key}={quoted(value)}"
    try:
        parser.parse_override(in_quotes)
    except HydraException:
        return str(error).splitlines()[0]
    plain = not set(in_quotes) & set('"$`\\!')
    shell = f'"{in_quotes}"' if plain else shlex.quote(in_quotes)
    return f"quote the value, inside the shell's own quotes: {shell}"


def quoted(value: str) -> str:
    """A string as Hydra's grammar reads it back unchanged."""
    return QuotedString(text=value, quote=Quote.single).with_quotes()


def with_key(line: Line, key: str) -> Line:
    """The same override of another key; sign, value and source are kept."""
    sign = line.text[: len(line.text) - len(line.text.lstrip("+~"))]
    _, equals, value = line.text.partition("=")
    override = OverridesParser.create().parse_override(f"{sign}{key}{equals}{value}")
    return dataclasses.replace(line, override=override)


def with_value(line: Line, key: str, value: str) -> Line:
    """``key=value`` as if it were written where ``line`` is."""
    override = OverridesParser.create().parse_override(f"{key}={quoted(value)}")
    return dataclasses.replace(line, override=override)


def strip_prefix(line: Line, prefix: str) -> Line:
    """``sft.optimizer.lr=1`` for stage ``sft`` is ``optimizer.lr=1``; signs and quoting are kept."""
    sign_end = len(line.text) - len(line.text.lstrip("+~"))
    sign, rest = line.text[:sign_end], line.text[sign_end:]
    override = OverridesParser.create().parse_override(sign + rest.removeprefix(prefix + "."))
    return dataclasses.replace(line, override=override)


def illegal_sweep(line: Line) -> Mistake | None:
    """A sweep (``a=1,2``, ``choice(...)``) where a single run was asked for."""
    if not line.override.is_sweep_override():
        return None
    value = line.text.partition("=")[2]
    return Mistake(
        line.key,
        f"'{value}' is a sweep, and this is a single run",
        f"add -m to sweep over it, or write a list as [{value}], or a string as {quoted(value)}",
        line.source,
    )


def illegal_hydra(line: Line) -> Mistake | None:
    """An override of Hydra's own node that is not offered."""
    key = line.key
    if key in ("hydra/launcher", "hydra/sweeper"):
        group = "launcher" if key == "hydra/launcher" else "sweep"
        return Mistake(key, f"{key} is fixed", f"choose with {group}=OPTION", line.source)
    if key.startswith("hydra/") or (key.split(".")[0] == "hydra" and not is_settable(key)):
        return Mistake(
            key,
            "this part of Hydra's configuration cannot be set",
            "settable: " + ", ".join(HYDRA_KEYS),
            line.source,
        )
    return None


def wrong_choice(line: Line, options: list[str]) -> Mistake | None:
    """What is wrong with a line that chooses an option of a group."""
    group, value = line.key, line.override.value()
    simple = f"{group}=OPTION" if line.override.is_delete() else f"{group}={line.text.partition('=')[2]}"
    if line.override.is_delete():
        return Mistake(
            group, f"the group '{group}' cannot be taken away", f"choose with {simple}", line.source
        )
    if line.override.package is not None:
        wrong = f"the group '{group}' has one place, so '@{line.override.package}' means nothing"
        return Mistake(group, wrong, f"write {simple}", line.source)
    if line.override.is_add() or line.override.is_force_add():
        return Mistake(group, f"the group '{group}' is there already", f"write {simple}", line.source)
    if isinstance(value, list):
        wrong = f"{value} is a list, and a group takes one option"
        return Mistake(group, wrong, f"options: {choices(options)}", line.source)
    if value is not None and (isinstance(value, bool) or str(value) not in options):
        wrong = f"there is no option '{value}' in group '{group}'"
        return Mistake(
            group, wrong, nearest(str(value), options) or f"options: {choices(options)}", line.source
        )
    return None
