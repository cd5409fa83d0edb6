"""The standard library of the running Python as text; read with ``ast``, never imported."""

from __future__ import annotations

import ast
import glob
import inspect
import os
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llmexp.corpus.faults import BadData, Faults
from llmexp.corpus.records import Record, well_formed
from llmexp.corpus.source import SplitSource

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def library() -> Path:
    """The folder of the standard library's Python sources."""
    return Path(sysconfig.get_paths()["stdlib"])


def module_files(exclude: Iterable[str]) -> list[Path]:
    """The library's modules, sorted by name, without those below a folder named in ``exclude``."""
    root, left_out = library(), set(exclude)
    files = []
    for folder, names, found in os.walk(root):
        names[:] = [n for n in names if n not in left_out and n != "__pycache__"]
        files += [Path(folder, name) for name in found if name.endswith(".py")]
    return sorted(files, key=lambda file: file.relative_to(root).as_posix())


def source_patterns(exclude: Iterable[str]) -> list[str]:
    """The library's modules as a few globs, one for the top and one for each package."""
    root = library()
    tops = {file.relative_to(root).parts[0] for file in module_files(exclude) if file.parent != root}
    base = glob.escape(str(root))
    packages = (os.path.join(base, glob.escape(top), "**", "*.py") for top in sorted(tops))
    return [os.path.join(base, "*.py"), *packages]


def module_name(file: Path) -> str:
    """The dotted name of a module of the library."""
    parts = file.relative_to(library()).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def module_key(file: Path) -> str:
    """What all records made from a module are split by, whichever source makes them."""
    return f"module {file.relative_to(library()).as_posix()}"


def read_module(file: Path) -> str:
    """The source of a module, decoded as Python does.

    Raises:
        SyntaxError, UnicodeDecodeError: its encoding is not what it says.
    """
    with tokenize.open(file) as text:
        return text.read()


def parse(source: str) -> ast.Module:
    """The syntax tree of a module, without the warnings that the compiler prints.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: this Python cannot parse it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


@dataclass(frozen=True)
class Docstring:
    """A documentation string; ``name`` is dotted, ``what`` is module, class or function."""

    name: str
    what: str
    text: str


def docstrings(tree: ast.Module, module: str) -> Iterator[Docstring]:
    """The docstrings of a module, its classes, and the functions in either, in the order of the source."""
    text = ast.get_docstring(tree)
    if text:
        yield Docstring(module, "module", text)
    yield from _inner(tree, module)


def _inner(node: ast.Module | _Definition, prefix: str) -> Iterator[Docstring]:
    for child in node.body:
        if not isinstance(child, _Definition):
            continue
        name = f"{prefix}.{child.name}"
        text = ast.get_docstring(child)
        if text:
            yield Docstring(name, "class" if isinstance(child, ast.ClassDef) else "function", text)
        if isinstance(child, ast.ClassDef):
            yield from _inner(child, name)


@dataclass(kw_only=True)
class PythonStdlib(SplitSource):
    """Docstrings as prose and modules as code, split by the hash of the module's path.

    Not by their texts, as other sources are: all records of one module share their ``split_key``, for
    a held-out docstring would otherwise be read in training inside its own module.
    """

    exclude: list[str]
    docstrings: bool
    modules: bool
    _faults: Faults = field(init=False, default_factory=Faults)

    @property
    def faults(self) -> Faults:
        """Modules that could not be read."""
        return self._faults

    def records(self) -> Iterator[Record]:
        """The docstrings of each module, then the module.

        Raises:
            BadData: this Python has no source of its library.
        """
        files = module_files(self.exclude)
        if not files:
            raise BadData(f"{library()} holds no Python source: this Python was installed without it")
        for file in files:
            name = file.relative_to(library()).as_posix()
            try:
                source, _ = well_formed(read_module(file))
                tree = parse(source)
            except (SyntaxError, ValueError) as error:  # UnicodeDecodeError is a ValueError
                self._faults.bad_file(name, f"cannot be parsed: {error}", 0)
                continue
            key = module_key(file)
            if self.docstrings:
                for number, doc in enumerate(docstrings(tree, module_name(file))):
                    text = well_formed(inspect.cleandoc(doc.text))[0]
                    common = {"source": "docstrings", "kind": "prose", "split_key": key}
                    yield {"id": f"{doc.name}#{number}", "text": text, **common}
            if self.modules and source.strip():
                yield {"id": name, "text": source, "source": "modules", "kind": "code", "split_key": key}
