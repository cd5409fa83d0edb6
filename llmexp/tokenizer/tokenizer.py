"""The tokenizer that every stage uses, loaded from a folder in the format of Hugging Face."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmexp.corpus.records import well_formed
from llmexp.tokenizer import chat
from llmexp.tokenizer.chat import ChatError, Message, Span, UnstableTemplate
from llmexp.tokenizer.engine import Engine, Ids
from llmexp.tokenizer.folder import NAMED_TOKENS, read_folder

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
"""One byte, as vocabularies of SentencePiece write it."""


class Tokenizer:
    """Text and conversations to ids and back.

    Text is ordinary text throughout: a special token that it spells out is never taken for the token.
    Only a chat template, and ``bos``, write special tokens.
    """

    def __init__(self, content: dict[str, Any], config: dict[str, Any]) -> None:
        """Take the contents of ``tokenizer.json`` and of ``tokenizer_config.json``."""
        from tokenizers import Tokenizer as Backend

        text = json.dumps(content, ensure_ascii=False)
        self._backend = Backend.from_str(text)
        self._backend.encode_special_tokens = True
        self._content = content
        self.fingerprint = hashlib.sha256(text.encode() + _chat_config(config).encode()).hexdigest()[:32]
        """Of all that changes ids."""
        self._engine = Engine(self._backend, content)
        self.engine: str = self._engine.name
        """What encodes text: ``tiktoken`` or ``tokenizers``; the ids are the same."""
        self.engine_reason: str = self._engine.reason

        added = content.get("added_tokens", [])
        self.vocab_size: int = max([*self._backend.get_vocab(with_added_tokens=True).values(), -1]) + 1
        """One more than the largest id, added tokens included."""
        self.special_ids: dict[str, int] = {t["content"]: t["id"] for t in added if t["special"]}
        self._special = [t for t in added if t["special"]]
        self._named = {name: config[name] for name in NAMED_TOKENS if isinstance(config.get(name), str)}
        self.bos_id = self._id_of("bos_token")
        self.eos_id = self._id_of("eos_token")
        self.pad_id = self._id_of("pad_token")
        self.chat_template: str | None = config.get("chat_template")
        self.adds_bos: bool = self._asks_for_bos(config)
        """Whether text and conversations begin with ``bos_id``."""
        self._separable = _is_separable(content)

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        """Load the folder at ``path``.

        Raises:
            FileNotFoundError: it holds no ``tokenizer.json``.
        """
        return cls(*read_folder(Path(path)))

    # text

    def encode(self, text: str, *, bos: bool = False) -> list[int]:
        """Ids of ``text``; with ``bos`` after the mark of a start, where this tokenizer asks for one."""
        ids = self.encode_array(text).tolist()
        return [self.bos_id, *ids] if bos and self.adds_bos and self.bos_id is not None else ids

    def encode_array(self, text: str) -> Ids:
        """Ids of ``text``, (n,) uint32; releases the GIL for most of the time."""
        return self._engine.encode(well_formed(text)[0])

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ``ids``; what is no valid UTF-8 becomes U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_special)

    @functools.cached_property
    def token_bytes(self) -> npt.NDArray[np.int64]:
        """(vocab_size,) int64: UTF-8 bytes of text for which each id stands; 0 for special tokens.

        Exact for byte-level tokenizers; for others the bytes of the token decoded after another one.
        """
        from llmexp.tokenizer.ranks import to_bytes

        sizes = np.zeros(self.vocab_size, dtype=np.int64)
        special = set(self.special_ids.values())
        added = {t["content"] for t in self._content.get("added_tokens", [])}
        for token, k in self._backend.get_vocab(with_added_tokens=True).items():
            if k in special:
                continue
            raw = to_bytes(token) if self._separable and token not in added else None
            if raw is None:
                raw = b"." if _BYTE_TOKEN.fullmatch(token) else token.replace("▁", " ").encode()
            sizes[k] = len(raw)
        return sizes

    # conversations

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
        """The conversation as the chat template writes it.

        Raises:
            ChatError: there is no template, or it refuses the conversation.
        """
        return self._render(messages, add_generation_prompt)[0]

    def encode_prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation up to the assistant's next turn: those that training saw there."""
        try:
            return self._ids_of_rendered(*self._render_with_spans(messages, True))[0]
        except UnstableTemplate:
            # No training ids exist that these could differ from: `encode_chat` refuses the template.
            marked = chat.mark(messages, self._special_text)
            return self._ids_of_rendered(self._render(marked, True)[0], [])[0]

    def encode_chat(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Ids of a conversation, and which of them an assistant wrote.

        The counted tokens are those of the assistant's turns from the end of the generation prompt through
        the token that ends the turn. A turn's first token never merges with the prompt before it.

        Raises:
            ChatError: the template refuses the conversation, or its turns cannot be told apart.
        """
        chat.check_messages(messages)
        return self._ids_of_rendered(*self._render_with_spans(messages, False))

    @functools.cached_property
    def end_ids(self) -> list[int]:
        """Ids at which a generated turn is over: what the template writes after one, the document's end."""
        ids = [] if self.eos_id is None else [self.eos_id]
        if self.chat_template is None:
            return ids
        answer = "answer"
        try:
            text = self.render(
                [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}]
            )
        except ChatError:
            return ids
        tail = text[text.rindex(answer) + len(answer) :] if answer in text else ""
        ends = self._control.findall(tail)[:1] if self._control else []
        return list(dict.fromkeys([*(self.special_ids[token.strip()] for token in ends), *ids]))

    def _render_with_spans(
        self, messages: Sequence[Message], add_generation_prompt: bool
    ) -> tuple[str, list[Span]]:
        """The marked text of a conversation, and where in it an assistant speaks."""
        marked = chat.mark(messages, self._special_text)
        full, spans = self._render(marked, add_generation_prompt)
        if not chat.marks_generation(self.chat_template or ""):
            spans = chat.assistant_spans(
                marked, full, lambda some, prompt: self._render(some, prompt)[0], self._first_end(full)
            )
        return full, spans

    def _render(self, messages: Sequence[Message], add_generation_prompt: bool) -> tuple[str, list[Span]]:
        if self.chat_template is None:
            raise ChatError("the tokenizer has no chat template; set tokenizer.chat_template")
        return chat.render(
            self.chat_template, messages, add_generation_prompt=add_generation_prompt, named=self._named
        )

    @functools.cached_property
    def _special_text(self) -> re.Pattern[str] | None:
        """Special tokens as text, longest first."""
        tokens = sorted(self.special_ids, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, tokens))) if tokens else None

    @functools.cached_property
    def _control(self) -> re.Pattern[str] | None:
        """Special tokens that a template wrote, with the blanks that they take along; no marked ones."""
        tokens = sorted(self._special, key=lambda t: len(t["content"]), reverse=True)
        if not tokens:
            return None
        patterns = (
            (r"\s*" if t["lstrip"] else "") + re.escape(t["content"]) + (r"\s*" if t["rstrip"] else "")
            for t in tokens
        )
        return re.compile(rf"(?<!{chat.MARK_START})(?:{'|'.join(patterns)})(?!{chat.MARK_END})")

    def _first_end(self, full: str) -> Callable[[int], int | None]:
        """Finds the end of the first token from a position on that ends a turn."""
        found = self._control.finditer(full) if self._control else []
        ends = [m.end() for m in found if self.special_ids[m.group().strip()] in self.end_ids]

        def first(position: int) -> int | None:
            return next((end for end in ends if end > position), None)

        return first

    def _ids_of_rendered(self, text: str, spans: Sequence[Span]) -> tuple[list[int], list[bool]]:
        """Ids of a marked text, and which lie within ``spans``; with the start the tokenizer asks for."""
        if self._separable:
            ids, mask = self._piecewise(text, spans)
        else:
            ids, mask = self._by_offsets(text, spans)
        if self.adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids], [False, *mask]
        return ids, mask

    def _piecewise(self, text: str, spans: Sequence[Span]) -> tuple[list[int], list[bool]]:
        """The template's special tokens, and the text between them as ordinary text, cut at the spans."""
        ids: list[int] = []
        mask: list[bool] = []
        cuts = sorted({position for span in spans for position in span})

        def add(new: Sequence[int], start: int) -> None:
            ids.extend(new)
            mask.extend([any(a <= start < b for a, b in spans)] * len(new))

        def add_text(start: int, end: int) -> None:
            edges = [start, *(cut for cut in cuts if start < cut < end), end]
            for a, b in itertools.pairwise(edges):
                piece = chat.unmark(text[a:b])
                if piece:
                    add(self.encode(piece), a)

        position = 0
        for match in self._control.finditer(text) if self._control else []:
            add_text(position, match.start())
            add([self.special_ids[match.group().strip()]], match.start())
            position = match.end()
        add_text(position, len(text))
        return ids, mask

    def _by_offsets(self, text: str, spans: Sequence[Span]) -> tuple[list[int], list[bool]]:
        """All at once, for tokenizers whose tokens depend on what stands before them."""
        if chat.unmark(text) != text:
            raise ChatError("a message spells out a special token, which this tokenizer cannot keep as text")
        encoded = self._parsing.encode(well_formed(text)[0], add_special_tokens=False)
        mask = [
            any(a <= start and end <= b and start < end for a, b in spans) for start, end in encoded.offsets
        ]
        return list(encoded.ids), mask

    @functools.cached_property
    def _parsing(self) -> Any:
        """The backend as it takes special tokens for what they are."""
        from tokenizers import Tokenizer as Backend

        return Backend.from_str(json.dumps(self._content, ensure_ascii=False))

    def _id_of(self, name: str) -> int | None:
        token = self._named.get(name)
        return None if token is None else self._backend.token_to_id(token)

    def _asks_for_bos(self, config: dict[str, Any]) -> bool:
        if self.bos_id is None or config.get("add_bos_token") is False:
            return False
        return config.get("add_bos_token") is True or self._backend.encode("a").ids[:1] == [self.bos_id]


def _chat_config(config: dict[str, Any]) -> str:
    names = ("chat_template", "add_bos_token", *NAMED_TOKENS)
    return json.dumps({name: config.get(name) for name in names}, sort_keys=True, ensure_ascii=False)


def _is_separable(content: dict[str, Any]) -> bool:
    """Whether two texts may be encoded apart: byte-level words without a blank put before the first."""
    pre = content.get("pre_tokenizer") or {}
    steps = pre.get("pretokenizers", [pre])
    normalizer = content.get("normalizer") or {}
    kinds = {step.get("type") for step in normalizer.get("normalizers", [normalizer])}
    return (
        steps[-1].get("type") == "ByteLevel" and not steps[-1]["add_prefix_space"] and kinds <= {"NFC", None}
    )
