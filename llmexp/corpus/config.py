"""The `data` group: where text comes from."""

from __future__ import annotations

import codecs
import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from llmexp.config.spec import MISSING, Mistake, Spec, setting
from llmexp.store.files import matches, walk

KINDS = ("prose", "code", "chat", "prompt")
"""What a record can be; curation steps choose among them."""

CHAT_KINDS = ("chat", "prompt")
"""The kinds that hold messages."""

MAX_PROBLEMS = 1_000_000
"""Arithmetic problems that one source may choose from."""


@dataclass(kw_only=True)
class DataSpec(Spec):
    """A source of records.

    A source of one's own is a subclass in one's own package: fields, and ``builds`` naming a
    `llmexp.corpus.source.Source` (or anything with its ``records()`` and ``split(record)``).
    """

    def gives_chats(self) -> bool | None:
        """Whether its records hold messages; None: only its records can tell."""
        return None

    def holds_out(self) -> bool | None:
        """Whether some of its records are held out; None: only its records can tell."""
        return None


@dataclass(kw_only=True)
class SplitDataSpec(DataSpec):
    """A source whose records are split by the hash of their text."""

    heldout: float = setting(
        "Share of the documents that is held out, chosen by the hash of each text.",
        default=0.05,
        ge=0,
        lt=1,
    )
    max_documents: int | None = setting(
        "At most so many documents, the first ones read; empty = all.", default=None, ge=1
    )

    def holds_out(self) -> bool:
        """Where a share is to be held out."""
        return self.heldout > 0


@dataclass(kw_only=True)
class FileDataSpec(SplitDataSpec):
    """Local files, read as a stream."""

    path: str = setting(
        "A file, a folder (read with its subfolders) or a glob such as 'notes/**/*.md'.",
        result=False,
    )
    kind: str = setting(
        "What the records are: curation has other rules for prose than for code.",
        default="prose",
        choices=KINDS,
    )
    max_document_bytes: int = setting(
        "A larger document is left out and counted as bad.", default=16 * 2**20, unit="bytes", ge=1
    )
    on_bad_file: str = setting(
        "What a broken, empty, binary or truncated file does: skip keeps its complete records and goes on.",
        default="skip",
        choices=("fail", "skip"),
    )
    max_bad_files: int = setting("More bad files than this end the stage.", default=10, unit="files", ge=0)
    max_bad_records: int = setting(
        "More bad records than this end the stage.", default=100, unit="records", ge=0
    )

    def check(self) -> Iterator[Mistake]:
        """The path names at least one file. Nothing is opened."""
        yield from path_mistakes(self.path, "path")

    def gives_chats(self) -> bool:
        """Files of text hold none."""
        return False


@dataclass(kw_only=True)
class EncodedDataSpec(FileDataSpec):
    """Local files of text."""

    encoding: str = setting(
        "Encoding of what is not valid UTF-8 and has no byte-order mark, such as latin-1.",
        default="utf-8",
    )

    def check(self) -> Iterator[Mistake]:
        """The encoding exists."""
        yield from super().check()
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            yield Mistake("encoding", f"{self.encoding!r} is no encoding that Python has", "use e.g. latin-1")


def path_mistakes(path: str, name: str) -> Iterator[Mistake]:
    """What is wrong with a path or glob that must name something on this machine."""
    if path == MISSING:  # it is told once, by what looks for those
        return
    expanded = os.path.expanduser(path)
    try:
        mode = _mode(expanded)
        if stat.S_ISDIR(mode):
            if next(walk(expanded, hidden=False), None) is None:
                yield Mistake(name, f"{path} holds no file", "give a folder with files, a file or a glob")
        elif mode and not stat.S_ISREG(mode):
            yield Mistake(name, f"{path} is neither a file nor a folder", "give a file, a folder or a glob")
        elif not mode and not glob.has_magic(expanded):
            problem = f"{path} does not exist" if path else "is empty"
            yield Mistake(name, problem, "give a file, a folder or a glob")
        elif not mode and next(matches(expanded), None) is None:
            yield Mistake(name, f"{path} matches no file", "quote the glob, and use ** for subfolders")
    except PermissionError as error:
        remedy = "change its permissions, or name paths without it"
        yield Mistake(name, f"{error.filename} may not be read by this user", remedy)


def _mode(path: str) -> int:
    """Of what is there, links followed; 0 where there is nothing. Raises PermissionError."""
    try:
        return os.stat(path).st_mode
    except PermissionError:
        raise
    except OSError:
        return 0


@dataclass(kw_only=True)
class TextFilesSpec(EncodedDataSpec):
    """Plain text: one document a file, or several where a file is long."""

    builds: ClassVar[str] = "llmexp.corpus.readers:TextFiles"
    suffixes: list[str] = setting(
        "Endings of the files that a folder is searched for (.gz .bz2 .xz .zst may follow); .py is code.",
        default=[".txt", ".text", ".md", ".markdown", ".rst", ".org", ".adoc", ".tex"],
    )
    separator: str = setting(
        "Text between two documents of one file, such as <|endoftext|>; empty = none.", default=""
    )
    piece_chars: int = setting(
        "A longer text becomes several documents, cut after a blank line (or line); 0 = never.",
        default=65536,
        unit="characters",
        ge=0,
    )


@dataclass(kw_only=True)
class JsonlSpec(EncodedDataSpec):
    """One JSON object a line."""

    builds: ClassVar[str] = "llmexp.corpus.readers:JsonLines"
    text_field: str = setting("Name of the field that holds the text.", default="text")


@dataclass(kw_only=True)
class CsvSpec(EncodedDataSpec):
    """A table with a header line; values are text, whatever they look like."""

    builds: ClassVar[str] = "llmexp.corpus.tables:CsvTable"
    text_field: str = setting("Name of the column that holds the text.", default="text")
    delimiter: str = setting(r"The character between two columns; \t is a tab.", default=",")

    def __post_init__(self) -> None:
        if self.delimiter == r"\t":  # a shell and an override have no escape for it
            self.delimiter = "\t"

    def check(self) -> Iterator[Mistake]:
        """The delimiter is one character."""
        yield from super().check()
        if len(self.delimiter) != 1:
            yield Mistake("delimiter", f"{self.delimiter!r} is not one character", "use e.g. ';'")


@dataclass(kw_only=True)
class ParquetSpec(FileDataSpec):
    """Parquet files."""

    builds: ClassVar[str] = "llmexp.corpus.tables:Parquet"
    text_field: str = setting("Name of the column that holds the text.", default="text")


@dataclass(kw_only=True)
class ChatJsonlSpec(EncodedDataSpec):
    """Conversations, one JSON object a line; fields beside the messages (an answer, say) are kept."""

    builds: ClassVar[str] = "llmexp.corpus.readers:ChatLines"
    kind: str = setting(
        "Conversations to learn from, or prompts whose answers a reward checks.",
        default="chat",
        choices=("chat", "prompt"),
    )
    messages_field: str = setting(
        "Name of the field that holds the messages: role and content, or from and value.",
        default="messages",
    )

    def gives_chats(self) -> bool:
        """Always."""
        return True


@dataclass(kw_only=True)
class HuggingFaceSpec(SplitDataSpec):
    """A dataset of the Hugging Face Hub, or a local folder in the same format, as a stream."""

    builds: ClassVar[str] = "llmexp.corpus.hub:HubDataset"
    needs_modules: ClassVar[tuple[str, ...]] = ("datasets",)
    extra: ClassVar[str] = "hub"
    path: str = setting("Name on the Hub (owner/name), or a local folder.")
    name: str | None = setting("Configuration of the dataset, where it has several.", default=None)
    hub_split: str = setting("Which of the dataset's own splits is read.", default="train")
    revision: str | None = setting("Commit, branch or tag on the Hub; empty = the newest.", default=None)
    text_field: str = setting("Name of the column that holds the text.", default="text")
    messages_field: str | None = setting(
        "Name of the column that holds messages, for conversations; empty = the dataset is text.",
        default=None,
    )
    kind: str = setting("What the records are.", default="prose", choices=KINDS)
    max_document_bytes: int = setting(
        "A larger document is left out and counted as bad.", default=16 * 2**20, unit="bytes", ge=1
    )
    max_bad_records: int = setting(
        "More bad records than this end the stage.", default=100, unit="records", ge=0
    )

    def gives_chats(self) -> bool:
        """Where the column of messages is named."""
        return self.messages_field is not None


@dataclass(kw_only=True)
class PythonStdlibSpec(SplitDataSpec):
    """The standard library of the running Python: docstrings as prose, modules as code; none is imported.

    It is split by module: a module and its docstrings are held out together.
    """

    builds: ClassVar[str] = "llmexp.corpus.stdlib:PythonStdlib"
    exclude: list[str] = setting(
        "Folders that are not read, wherever they lie.",
        default=[
            "site-packages",
            "dist-packages",
            "test",
            "tests",
            "idlelib",
            "lib2to3",
            "pydoc_data",
            "turtledemo",
            "distutils",
        ],
    )
    docstrings: bool = setting("Read the documentation strings, as prose.", default=True)
    modules: bool = setting("Read the modules' source, as code.", default=True)

    def check(self) -> Iterator[Mistake]:
        """Something is read."""
        if not (self.docstrings or self.modules):
            yield Mistake("modules", "neither docstrings nor modules are read", "set one of them to true")

    def gives_chats(self) -> bool:
        """Never."""
        return False


@dataclass(kw_only=True)
class ProblemsSpec(Spec):
    """Arithmetic problems, and how they are written."""

    low: int = setting("Smallest operand.", default=10, ge=0)
    high: int = setting("Largest operand.", default=99, ge=1)
    operators: list[str] = setting("Operators: + - *; a difference is never negative.", default=["+"])
    digits: str = setting(
        "How numbers are written: plain 47, spaced '4 7', reversed 74 (lowest digit first, in answers only).",
        default="plain",
        choices=("plain", "spaced", "reversed"),
    )
    question: str = setting("The question; {problem} becomes '47 + 25'.", default="What is {problem}?")

    def check(self) -> Iterator[Mistake]:
        """Operands form a range, operators are known, the question holds the problem."""
        if self.high < self.low:
            yield Mistake("high", f"{self.high} is below low = {self.low}", "raise it")
        unknown = [op for op in self.operators if op not in ("+", "-", "*")]
        if unknown or not self.operators:
            yield Mistake("operators", f"{self.operators} is not a choice of + - *", "use e.g. ['+']")
        if "{problem}" not in self.question:
            yield Mistake("question", f"{self.question!r} lacks {{problem}}", "use 'What is {problem}?'")
        if self.count() > MAX_PROBLEMS:
            yield Mistake("high", f"{self.count()} problems; at most {MAX_PROBLEMS} are sorted", "lower it")

    def count(self) -> int:
        """How many problems there are, operands in either order counted once."""
        numbers = self.high - self.low + 1
        return len(set(self.operators)) * numbers * (numbers + 1) // 2


@dataclass(kw_only=True)
class ArithmeticSpec(DataSpec):
    """Arithmetic prompts with their answers, for learning from rewards.

    One problem in ten is held out, by a hash of operator and unordered operands that no setting
    changes: so no other source of problems can show a held-out one in training.
    """

    builds: ClassVar[str] = "llmexp.corpus.arithmetic:ArithmeticPrompts"
    problems: ProblemsSpec = field(
        default_factory=ProblemsSpec, metadata=dict(setting("The problems.").metadata)
    )
    n_train: int = setting("Training prompts at most.", default=4000, ge=1)
    n_heldout: int = setting("Held-out prompts at most.", default=256, ge=1)
    sample: int = setting("Which sample of the problems; another number draws others.", default=0, ge=0)

    def check(self) -> Iterator[Mistake]:
        """There are problems enough to hold some out."""
        if self.problems.count() < 20:
            yield Mistake(
                "problems.high",
                f"only {self.problems.count()} different problems: one in ten is held out",
                "widen the operands",
            )

    def gives_chats(self) -> bool:
        """Always."""
        return True


@dataclass(kw_only=True)
class DocstringChatsSpec(SplitDataSpec):
    """Conversations about the standard library, made from its docstrings, with some arithmetic.

    ``heldout`` splits the docstrings by their modules, as `PythonStdlibSpec` does: with its share, or
    a lower one, a held-out conversation is about a module that pre-training holds out. The arithmetic
    is split as `ArithmeticSpec` says.
    """

    builds: ClassVar[str] = "llmexp.corpus.chats:DocstringChats"
    phrasings: int = setting("Conversations a docstring, each with another question.", default=1, ge=0, le=6)
    max_answer_chars: int = setting(
        "Longer first paragraphs are cut after a sentence.", default=240, unit="characters", ge=20
    )
    n_docstrings: int | None = setting(
        "At most so many docstrings, chosen by a hash of their names; null: all.", default=None, ge=1
    )
    n_arithmetic: int = setting("Arithmetic demonstrations for training.", default=1000, ge=0)
    arithmetic_repeats: int = setting(
        "Copies of each training demonstration: a three-token answer weighs little beside a docstring.",
        default=4,
        ge=1,
    )
    n_arithmetic_heldout: int = setting("Arithmetic conversations held out.", default=100, ge=0)
    sample: int = setting("Which sample of the problems; another number draws others.", default=0, ge=0)
    problems: ProblemsSpec = field(
        default_factory=ProblemsSpec, metadata=dict(setting("The arithmetic problems.").metadata)
    )

    def check(self) -> Iterator[Mistake]:
        """Something is made."""
        if not (self.phrasings or self.n_arithmetic):
            yield Mistake("phrasings", "neither docstrings nor arithmetic are used", "set phrasings=1")

    def holds_out(self) -> bool:
        """Docstrings, or arithmetic."""
        return super().holds_out() or self.n_arithmetic_heldout > 0

    def gives_chats(self) -> bool:
        """Always."""
        return True
