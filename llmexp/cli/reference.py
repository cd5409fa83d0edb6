"""Reference pages from the specs: ``python -m llmexp.cli.reference docs/reference`` writes one a group."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from pathlib import Path
from typing import Any

from llmexp.cli import catalogue
from llmexp.cli.compose import session
from llmexp.config.files import ROOT
from llmexp.config.loader import SpecLoader
from llmexp.config.spec import Spec, settings
from llmexp.config.typed import field_types, spec_class
from llmexp.stage.config import StageSpec

NOTE = "<!-- Written from the specs by `python -m llmexp.cli.reference docs/reference`: edit those. -->"


def main(args: list[str]) -> int:
    """Write, or with ``--check`` compare, every page."""
    made = argparse.ArgumentParser(
        prog="python -m llmexp.cli.reference",
        description="Write one reference page a group.",
        allow_abbrev=False,
    )
    made.add_argument("folder", type=Path, help="where the pages go: docs/reference")
    made.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 when a page is out of date"
    )
    given = made.parse_args(args)
    pages = all_pages()
    stale = [name for name, text in pages.items() if _read(given.folder / name) != text]
    surplus = (
        sorted({path.name for path in given.folder.glob("*.md")} - set(pages))
        if given.folder.is_dir()
        else []
    )
    if given.check:
        sys.stdout.writelines(f"{given.folder / name} is out of date\n" for name in [*stale, *surplus])
        return 1 if stale or surplus else 0
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (given.folder / name).write_text(pages[name], encoding="utf-8")
    for name in surplus:
        (given.folder / name).unlink()
    sys.stdout.write(f"{len(pages)} pages in {given.folder}, {len(stale)} written, {len(surplus)} removed\n")
    return 0


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def all_pages() -> dict[str, str]:
    """File name to text, of every group of the shipped tree, the root and an index."""
    loader = session([], complete=False).loader
    groups = catalogue.groups(loader)
    pages = {f"{group}.md": group_page(loader, group, groups) for group in groups}
    loaded: Any = loader.repository.load_config(ROOT)
    root = spec_class(str(loaded.config["_target_"]))
    pages["root.md"] = _joined([f"# The root\n\n{_sentence(root)}", *_specs([root], [*groups, "stages"])])
    pages["README.md"] = _index(loader, groups)
    return pages


def group_page(loader: SpecLoader, group: str, groups: list[str]) -> str:
    """One group: its options with their headers, then the specs that they are."""
    options = catalogue.options(loader, group)
    rows = []
    for option in options:
        spec = option.spec.rpartition(".")[2]
        rows.append(
            [f"`{option.name}`", _plain(option.header).replace("\n", "<br>"), f"[`{spec}`](#{spec.lower()})"]
        )
    classes = list(dict.fromkeys(spec_class(option.spec) for option in options if option.spec))
    how = f"Chosen with `{group}=OPTION`; `llmexp config {group}=OPTION` shows an option's values."
    top = f"# `{group}`\n\n{how}"
    return _joined([top, _table(["option", "what it is", "spec"], rows), *_specs(classes, groups)])


def _index(loader: SpecLoader, groups: list[str]) -> str:
    rows = [
        [
            f"[`{group}`]({group}.md)",
            ", ".join(f"`{option.name}`" for option in catalogue.options(loader, group)),
        ]
        for group in groups
    ]
    about = "Every group of the configuration, its options, and every value that can be set."
    top = f"# Reference\n\n{about} What holds for a whole pipeline: [root](root.md)."
    return _joined([top, _table(["group", "options"], rows)])


def _specs(classes: list[type[Spec]], groups: list[str]) -> list[str]:
    """A section for each spec, and for those that its fields hold and no other page tells about."""
    done: dict[type[Spec], str] = {}
    todo = list(classes)
    while todo:
        cls = todo.pop(0)
        if cls not in done:
            done[cls] = _section(cls)
            todo += _held(cls, groups)
    return list(done.values())


def _held(cls: type[Spec], groups: list[str]) -> list[type[Spec]]:
    """The specs that fields of ``cls`` may hold; a field with a group's name takes that group's options."""
    kinds = field_types(cls)  # type: ignore[arg-type]
    found: list[type[Spec]] = []
    for field in settings(cls):
        if field.name not in groups:
            candidates = [kinds[field.name], *typing.get_args(kinds[field.name])]
            bases = [one for one in candidates if isinstance(one, type) and issubclass(one, Spec)]
            found += [
                one
                for base in bases
                for one in (base, *_below(base))
                if one.builds or not base.__subclasses__()
            ]
    return found


def _below(cls: type[Spec]) -> list[type[Spec]]:
    """All subclasses, in the order in which they were written."""
    return [one for direct in cls.__subclasses__() for one in (direct, *_below(direct))]


def _section(cls: type[Spec]) -> str:
    rows = [_row(field) for field in catalogue.fields(cls)]
    body = (
        _table(["field", "type", "unit", "default", "allowed", "result", "what it is"], rows)
        if rows
        else "No settings."
    )
    about = f"`_target_: {cls.__module__}.{cls.__qualname__}`\n\n{_sentence(cls)}{_needs(cls)}"
    return f"## {cls.__name__}\n\n{about}\n\n{body}"


def _needs(cls: type[Spec]) -> str:
    """What a stage takes and makes."""
    if not issubclass(cls, StageSpec):
        return ""
    needs = [
        f"`{name}` ({need.kind}{', several' * need.many}{', optional' * need.optional})"
        for name, need in cls.needs.items()
    ]
    return f"\n\nNeeds: {', '.join(needs) or 'nothing'}. Makes: {cls.makes}."


def _row(field: catalogue.Field) -> list[str]:
    default = f"**{field.default}**" if field.default == catalogue.REQUIRED else f"`{field.default}`"
    result = "yes" if field.changes_result else "no"
    return [
        f"`{field.name}`",
        f"`{field.type}`",
        field.unit,
        default,
        field.limits,
        result,
        _plain(field.description),
    ]


def _sentence(cls: type[Any]) -> str:
    """The docstring's paragraphs."""
    text = (cls.__doc__ or "").strip()
    if dataclasses.is_dataclass(cls) and text.startswith(f"{cls.__name__}("):
        return ""  # dataclasses writes the signature where there is no docstring
    return "\n\n".join(" ".join(_plain(part).split()) for part in text.split("\n\n"))


def _plain(text: str) -> str:
    """Text in which ``<tag>`` is no HTML; what stands in backticks stays."""
    parts = text.split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _joined(parts: list[str]) -> str:
    return "\n\n".join([NOTE, *(part for part in parts if part)]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
