"""Conversations: rendering, the spans an assistant wrote, and text that only looks like a control token.

Positions are character positions in the marked text: the rendered text in which every special token
that a message's content spells out stands between two private-use characters, so that it can be told
from those that the template writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]
Span = tuple[int, int]

MARK_START, MARK_END = "\uf8f0", "\uf8f1"
_MARKS = re.compile(f"[{MARK_START}-\uf8f3]")
"""These, and the two of ``{% generation %}`` blocks."""


class ChatError(ValueError):
    """A conversation that the template cannot render, or whose assistant turns cannot be told."""


class UnstableTemplate(ChatError):
    """A template that writes a turn otherwise once others follow, so that a turn's place cannot be told."""


def render(
    template: str, messages: Sequence[Message], *, add_generation_prompt: bool, named: dict[str, str]
) -> tuple[str, list[Span]]:
    """Render a conversation.

    Args:
        template: A Jinja chat template.
        messages: Each with ``role`` and ``content``.
        add_generation_prompt: End with the start of an assistant's turn.
        named: ``bos_token`` and the like, as the template may use them.

    Returns:
        The text, and the spans that the template itself marks by ``{% generation %}``.

    Raises:
        ChatError: the template refuses the conversation.
    """
    from jinja2 import TemplateError

    from llmexp.tokenizer.template import compiled

    # A key that holds nothing is as good as missing, and templates test for missing ones.
    plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
    try:
        text = compiled(template).render(messages=plain, add_generation_prompt=add_generation_prompt, **named)
    except (TemplateError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ChatError(f"the chat template refuses the conversation: {error}") from error
    return _without_generation_marks(text)


def _without_generation_marks(text: str) -> tuple[str, list[Span]]:
    """The text less the marks of ``{% generation %}`` blocks, and where these were."""
    from llmexp.tokenizer.template import GENERATION_END, GENERATION_START

    first, *blocks = text.split(GENERATION_START)
    spans = []
    for block in blocks:
        inside, _, after = block.partition(GENERATION_END)
        spans.append((len(first), len(first) + len(inside)))
        first += inside + after
    return first, spans


def marks_generation(template: str) -> bool:
    """Whether a template marks what the assistant wrote by ``{% generation %}`` blocks."""
    return re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None


def check_messages(messages: Any) -> None:
    """Raise ChatError where ``messages`` is no list of roles with text."""
    if not isinstance(messages, list) or not messages:
        raise ChatError("messages is not a list with at least one message")
    for k, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ChatError(f"message {k} has no role")
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            raise ChatError(f"message {k} has no content that is text")


def mark(value: Any, special: re.Pattern[str] | None) -> Any:
    """``value`` (text, or lists and dicts of it) with the special tokens that it spells out marked."""
    if isinstance(value, str):
        clean = _MARKS.sub("", value)
        return special.sub(rf"{MARK_START}\g<0>{MARK_END}", clean) if special else clean
    if isinstance(value, dict):
        return {key: mark(item, special) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mark(item, special) for item in value]
    return value


def unmark(text: str) -> str:
    """``text`` without marks."""
    return _MARKS.sub("", text)


def assistant_spans(
    messages: Sequence[Message],
    full: str,
    render_prefix: Callable[[Sequence[Message], bool], str],
    first_end: Callable[[int], int | None],
) -> list[Span]:
    """Where an assistant speaks in ``full``: from the end of the prompt for it through the end of the turn.

    Args:
        messages: The conversation.
        full: All of it, rendered.
        render_prefix: Renders the first messages, with or without the generation prompt.
        first_end: End of the first token at or after a position that ends a turn; None where there is none.

    Raises:
        UnstableTemplate: the spans cannot be told.
    """
    spans = []
    for k, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = render_prefix(messages[:k], True)
        if not full.startswith(prompt):
            raise UnstableTemplate(
                f"the template writes what comes before turn {k} otherwise than the prompt for it; "
                "mark the assistant's text in the template by {% generation %}"
            )
        end = first_end(len(prompt))
        if end is None:
            turn = render_prefix(messages[: k + 1], False)
            if not full.startswith(turn):
                raise UnstableTemplate(f"the end of turn {k} cannot be told; end turns with a special token")
            end = len(turn)
        spans.append((len(prompt), end))
    return spans
