"""Tokenizers of other tools, as one folder."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

from llmexp.config.mistakes import UserError
from llmexp.tokenizer.bpe import byte_level
from llmexp.tokenizer.config import HUB_FILES, HuggingFaceSpec, TokenizerSpec
from llmexp.tokenizer.engine import POSSESSIVE_COUNT
from llmexp.tokenizer.folder import DOCUMENT_END, SPECIAL_TOKENS, own_config, read_folder, write_folder
from llmexp.tokenizer.ranks import merges_of


def pin_revision(spec: TokenizerSpec) -> str | None:
    """The commit that a tokenizer on the Hub has now, which ``spec`` gets; None for any other.

    Asks the network; without one, the local cache.

    Raises:
        UserError: the Hub does not answer or knows no such name, and the cache has no copy.
    """
    if not isinstance(spec, HuggingFaceSpec) or Path(spec.name).expanduser().is_dir():
        return None
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        spec.revision = _snapshot(spec.name, spec.revision).name
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise UserError(f"tokenizer.name={spec.name} is no folder, and the Hub gave: {error}") from error
    return spec.revision


def _snapshot(name: str, revision: str | None) -> Path:
    """The local copy of a tokenizer's files on the Hub; the folder is called after the commit."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, allow_patterns=[*HUB_FILES]))


def import_huggingface(*, out: Path, name: str, revision: str | None, chat_template: str | None) -> None:
    """Write the folder of a tokenizer that `transformers` knows.

    Args:
        out: The folder to fill.
        name: A local folder, or a name on the Hub (the local cache is used without a network).
        revision: Commit or tag on the Hub.
        chat_template: A Jinja file in place of the tokenizer's own template.
    """
    source = Path(name).expanduser()
    if not source.is_dir():
        source = _snapshot(name, revision)
    if (source / "tokenizer.json").is_file():
        write_folder(out, *read_folder(source), chat_template)
        return
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ValueError(
            f"{name} holds no tokenizer.json; `pip install transformers` converts other formats"
        ) from error

    with tempfile.TemporaryDirectory() as converted:
        AutoTokenizer.from_pretrained(source).save_pretrained(converted)
        write_folder(out, *read_folder(Path(converted)), chat_template)


def import_tiktoken(*, out: Path, name: str, pattern: str | None, chat_template: str | None) -> None:
    """Write the folder of an encoding of tiktoken.

    Special tokens for chats and padding are added behind its own, and the chat template is ChatML.

    Args:
        out: The folder to fill.
        name: A name that tiktoken knows, or a local file of ranks.
        pattern: Where text is cut into words, if not as the encoding says.
        chat_template: A Jinja file in place of ChatML.
    """
    ranks, special, own_pattern = _tiktoken_parts(name)
    end = DOCUMENT_END if DOCUMENT_END in special or not special else next(iter(special))
    for token in SPECIAL_TOKENS if end == DOCUMENT_END else SPECIAL_TOKENS[1:]:
        if token not in special:
            special[token] = max([*ranks.values(), *special.values()]) + 1
    content = byte_level(ranks, merges_of(ranks), special, _for_oniguruma(pattern or own_pattern), start=end)
    write_folder(out, content, own_config(list(special), end), chat_template)


def _tiktoken_parts(name: str) -> tuple[dict[bytes, int], dict[str, int], str]:
    """Ranks, special tokens and word pattern of an encoding or of a file of ranks."""
    import tiktoken

    from llmexp.tokenizer.bpe import WORDS

    file = Path(name).expanduser()
    if file.is_file():
        return _ranks_in(file), {}, WORDS["triple"]
    parts: Any = tiktoken.get_encoding(name)
    return dict(parts._mergeable_ranks), dict(parts._special_tokens), parts._pat_str


def _ranks_in(file: Path) -> dict[bytes, int]:
    """The ranks in a file: a line a token, its bytes in base64 and its rank.

    tiktoken's own reader copies the file into a folder for all users of the machine, and goes on
    giving the copy after the file has changed.
    """
    ranks = {}
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError as error:
            raise ValueError(f"{file}, line {number} is no token in base64 and its rank") from error
    return ranks


def _for_oniguruma(pattern: str) -> str:
    """A pattern of tiktoken as `tokenizers` must read it.

    A counted repetition that does not go back stands at the end of an alternative in tiktoken's
    patterns, where going back would change nothing.
    """
    return POSSESSIVE_COUNT.sub(r"\1", pattern)
