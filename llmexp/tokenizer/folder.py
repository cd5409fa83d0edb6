"""The folder of a tokenizer: ``tokenizer.json`` and ``tokenizer_config.json``, as Hugging Face reads them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

DOCUMENT_END = "<|endoftext|>"
"""Stands before the first and after the last token of a document."""
TURN_START, TURN_END, PADDING = "<|im_start|>", "<|im_end|>", "<|pad|>"
SPECIAL_TOKENS = [DOCUMENT_END, TURN_START, TURN_END, PADDING]
"""Special tokens of the tokenizers made here."""

CHATML = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The ChatML layout (OpenAI, 2023), after the mark of a document's start."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
"""What a model's folder takes along of its tokenizer's."""

NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


def write_folder(
    out: Path, tokenizer: dict[str, Any], config: dict[str, Any], chat_template: str | None = None
) -> None:
    """Write a tokenizer's two files.

    Args:
        out: An existing folder.
        tokenizer: The content of ``tokenizer.json``.
        config: The content of ``tokenizer_config.json``.
        chat_template: A Jinja file whose template replaces the one in ``config``.
    """
    if chat_template is not None:
        config = {**config, "chat_template": Path(chat_template).expanduser().read_text(encoding="utf-8")}
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=name == "tokenizer_config.json")
        (out / name).write_text(text + "\n", encoding="utf-8")


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of ``tokenizer.json`` and of ``tokenizer_config.json`` of a folder.

    What newer folders keep apart (``chat_template.jinja``, ``special_tokens_map.json``) is put into the
    second, and every special token becomes a plain string.

    Raises:
        FileNotFoundError: there is no ``tokenizer.json``.
    """
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    config = _read_json(path / "tokenizer_config.json")
    config = {**_read_json(path / "special_tokens_map.json"), **config}
    template = path / "chat_template.jinja"
    if template.is_file():
        config["chat_template"] = template.read_text(encoding="utf-8")
    for name in NAMED_TOKENS:
        if isinstance(config.get(name), dict):
            config[name] = config[name]["content"]
    named = config.get("chat_template")
    if isinstance(named, list):
        by_name = {t["name"]: t["template"] for t in named}
        config["chat_template"] = by_name.get("default", named[0]["template"])
    return tokenizer, config


def copy_tokenizer(source: Path, out: Path) -> None:
    """Take a tokenizer's files along, so that a model's folder stands for itself."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)


def holds_chat_template(path: Path) -> bool | None:
    """Whether the tokenizer of a folder has a chat template, by its small files; None: no tokenizer."""
    if not (path / "tokenizer.json").is_file():
        return None
    try:
        named = bool(_read_json(path / "tokenizer_config.json").get("chat_template"))
    except ValueError:
        return None  # a broken file: told by what reads the folder in earnest
    return named or (path / "chat_template.jinja").is_file()


def own_config(special_tokens: list[str] | None = None, end: str = DOCUMENT_END) -> dict[str, Any]:
    """``tokenizer_config.json`` of a tokenizer with this package's special tokens and chat template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        "pad_token": PADDING,
        "add_bos_token": True,
        "additional_special_tokens": [t for t in special_tokens or SPECIAL_TOKENS if t not in (end, PADDING)],
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e9),
        "chat_template": CHATML,
    }


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
