"""What is known of an input before its stage runs: from the spec that makes it, or from small JSON files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.corpus.config import CHAT_KINDS
from llmexp.model.folder import read_spec
from llmexp.store.artifact import MANIFEST
from llmexp.tokenizer.folder import holds_chat_template


@dataclass(frozen=True, kw_only=True)
class Head:
    """What the check of a stage may ask of one of its inputs. None: it will be known when it is there."""

    vocab_size: int | None = None
    """Ids are below it."""
    max_seq_len: int | None = None
    """Context of a model."""
    chat_template: bool | None = None
    """Whether a tokenizer, or the one that a model brings along, can write conversations."""
    chat: bool | None = None
    """Whether the records of a corpus, or of shards, hold messages."""
    held_out: bool | None = None
    """Whether some of a corpus, or of shards, is held out."""


Heads = dict[str, tuple[Head, ...]]
"""The heads of each need, as far as they are known."""


def read_head(kind: str, folder: Path) -> Head:
    """The head of a given artifact or folder of a ``kind``. Opens JSON heads alone.

    Raises:
        ModelFolderError: a model's folder that holds none, or one that the decoder cannot be.
    """
    if kind == "model":
        spec = read_spec(folder)
        return Head(
            vocab_size=spec.vocab_size,
            max_seq_len=spec.max_seq_len,
            chat_template=holds_chat_template(folder),
        )
    if kind == "tokenizer":
        made = _json(folder / MANIFEST).get("summary", {}).get("vocab_size")
        known = made or _json(folder / "config.json").get("vocab_size")
        return Head(vocab_size=known, chat_template=holds_chat_template(folder))
    if kind == "shards":
        header = _json(folder / "train" / "header.json")
        held = _json(folder / "heldout" / "header.json").get("n_docs")
        return Head(
            vocab_size=header.get("vocab_size"),
            chat=header.get("chat"),
            held_out=None if held is None else held > 0,
        )
    if kind == "corpus":
        summary = _json(folder / MANIFEST).get("summary", {})
        kinds, held = summary.get("kinds"), summary.get("documents", {}).get("heldout")
        return Head(
            chat=not set(kinds).isdisjoint(CHAT_KINDS) if kinds else None,
            held_out=None if held is None else held > 0,
        )
    return Head()


def _json(file: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing where it is missing or broken: what opens it in earnest tells so."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
