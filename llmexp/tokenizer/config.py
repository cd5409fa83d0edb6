"""Specs of the tokenizers."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from llmexp.config.spec import Mistake, Spec, setting
from llmexp.tokenizer.folder import holds_chat_template

TIKTOKEN_ENCODINGS = (
    "gpt2",
    "r50k_base",
    "p50k_base",
    "p50k_edit",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
)
"""Encodings that tiktoken knows by name."""

HUB_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
    "*.model",
    "vocab*",
    "merges.txt",
    "config.json",
)
"""What a tokenizer of the Hugging Face kind may consist of."""


@dataclass(kw_only=True)
class TokenizerSpec(Spec):
    """Where a tokenizer comes from. All become one folder in the format of Hugging Face.

    ``builds`` is called with the fields and, at run time, ``out`` (the empty folder to fill) and, where
    it is trained, ``texts`` (the training texts).
    """

    trained: ClassVar[bool] = False
    """Whether it is learned from a corpus."""
    chatml: ClassVar[bool] = False
    """Whether it gets ChatML for a chat template where none is given."""

    chat_template: str | None = setting(
        "Jinja file whose template replaces the tokenizer's own.", default=None, path=True
    )

    def source_paths(self) -> list[str]:
        """Local files, or globs of them, that are read: their content decides the tokenizer too."""
        return [] if self.chat_template is None else [self.chat_template]

    def has_chat_template(self) -> bool | None:
        """Whether the tokenizer can write conversations; None: only its own files can tell."""
        return True if self.chatml or self.chat_template is not None else None


@dataclass(kw_only=True)
class BpeSpec(TokenizerSpec):
    """Byte-level BPE, trained on the corpus's training split."""

    builds: ClassVar[str] = "llmexp.tokenizer.bpe:train_bpe"
    trained: ClassVar[bool] = True
    chatml: ClassVar[bool] = True

    vocab_size: int = setting(
        "Size of the vocabulary, special tokens included.", default=4096, ge=260, unit="tokens"
    )
    digits: str = setting(
        "Digits in one token at most: numbers are cut into single digits or groups of three.",
        default="single",
        choices=("single", "triple"),
    )
    min_frequency: int = setting("A pair must occur this often to be merged.", default=2, ge=1)
    train_bytes: int | None = setting(
        "Text to learn from, from the start of the training split; null: all of it.",
        default=None,
        gt=0,
        unit="bytes",
    )


@dataclass(kw_only=True)
class BytesSpec(TokenizerSpec):
    """One token a byte."""

    builds: ClassVar[str] = "llmexp.tokenizer.bpe:make_bytes"
    chatml: ClassVar[bool] = True


@dataclass(kw_only=True)
class HuggingFaceSpec(TokenizerSpec):
    """A tokenizer of the Hugging Face kind."""

    builds: ClassVar[str] = "llmexp.tokenizer.imported:import_huggingface"

    name: str = setting("Folder, or name on the Hub.")
    revision: str | None = setting("Commit or tag on the Hub.", default=None)

    def check(self) -> Iterator[Mistake]:
        """A name that is written as a path must be a folder that holds a tokenizer."""
        folder = Path(self.name).expanduser()
        if self.name.startswith((".", "/", "~")) and not folder.is_dir():
            yield Mistake(
                "name", f"there is no folder {self.name}", "give the folder that holds tokenizer.json"
            )

    def source_paths(self) -> list[str]:
        """The tokenizer's files where ``name`` is a folder; weights that lie beside them do not count."""
        folder = Path(self.name).expanduser()
        globs = [str(Path(glob.escape(str(folder))) / pattern) for pattern in HUB_FILES]
        return super().source_paths() + [g for g in globs if folder.is_dir() and glob.glob(g)]

    def has_chat_template(self) -> bool | None:
        """As the folder's files say, where it is one."""
        return super().has_chat_template() or holds_chat_template(Path(self.name).expanduser())


@dataclass(kw_only=True)
class TiktokenSpec(TokenizerSpec):
    """An encoding of tiktoken, or a local file of ranks."""

    builds: ClassVar[str] = "llmexp.tokenizer.imported:import_tiktoken"
    chatml: ClassVar[bool] = True

    name: str = setting("Name of an encoding, or path of a .tiktoken file.", default="cl100k_base")
    pattern: str | None = setting(
        "Regular expression that cuts text into words; null: the encoding's own; for a file, cl100k_base's.",
        default=None,
    )

    def check(self) -> Iterator[Mistake]:
        """The name is one that tiktoken knows, or a file that is there."""
        if self.name not in TIKTOKEN_ENCODINGS and not Path(self.name).expanduser().is_file():
            known = ", ".join(TIKTOKEN_ENCODINGS)
            yield Mistake(
                "name", f"{self.name} is neither an encoding nor a file", f"one of {known}, or a file"
            )

    def source_paths(self) -> list[str]:
        """The file where ``name`` is one."""
        own = self.name not in TIKTOKEN_ENCODINGS and Path(self.name).expanduser().is_file()
        return super().source_paths() + ([self.name] if own else [])
