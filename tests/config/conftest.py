"""The command in this process, and composed trees."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmexp.cli.compose import compose as compose_all
from llmexp.cli.main import main
from llmexp.stage.graph import Composition


@dataclass
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture
def llmexp(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def call(*words: object) -> Said:
        capsys.readouterr()
        code = main([str(word) for word in words])
        found = capsys.readouterr()
        return Said(code, found.out, found.err)

    return call


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Hydra sets up logging to the streams of one test; put back what was before."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def compose() -> Callable[..., Composition]:
    """The specs of a composition; ``tree`` is a person's own config tree."""

    def call(*lines: str, tree: Path | None = None) -> Composition:
        return compose_all(list(lines), [] if tree is None else [str(tree)])[0]

    return call


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Write a person's own config tree: file name to content."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            file = tmp_path / "tree" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return tmp_path / "tree"

    return write
