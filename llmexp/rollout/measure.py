"""How often a model's likeliest answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmexp.model.decoder import Decoder
from llmexp.rollout.engine import Completions, completion_texts, generate
from llmexp.rollout.prompts import prompt_ids
from llmexp.rollout.rewards.exact_answer import same_answer
from llmexp.rollout.sampling import Sampling


def greedy_texts(
    model: Decoder,
    tokenizer: Any,
    records: Sequence[dict[str, Any]],
    *,
    max_new_tokens: int,
    batch_size: int = 256,
    context_length: int | None = None,
) -> tuple[list[str], Completions]:
    """The likeliest answer to each record's ``messages``, as text and as tokens.

    Raises:
        ValueError: a record is no prompt, or too long a one.
    """
    completions = generate(
        model,
        held_prompts(tokenizer, records, context_length),
        Sampling(temperature=0, max_new_tokens=max_new_tokens),
        [0] * len(records),  # nothing is drawn at temperature 0
        tokenizer.end_ids,
        batch_size=batch_size,
        context_length=context_length,
        vocab_size=tokenizer.vocab_size,
    )
    return completion_texts(tokenizer, completions), completions


def held_prompts(
    tokenizer: Any, records: Sequence[dict[str, Any]], context_length: int | None
) -> list[list[int]]:
    """The ids of every prompt. Raises ValueError for a record that is none, or that leaves no room."""
    longest = None if context_length is None else context_length - 1
    return [prompt_ids(tokenizer, record, longest=longest) for record in records]


def is_right(record: dict[str, Any], text: str) -> bool:
    """Whether a completion is the record's ``answer``, compared as the reward exact_answer does."""
    return same_answer(text.strip(), str(record["answer"]).strip())


def exact_match(
    model: Decoder,
    tokenizer: Any,
    records: Sequence[dict[str, Any]],
    *,
    max_new_tokens: int,
    batch_size: int = 256,
    context_length: int | None = None,
) -> dict[str, float]:
    """Greedy answers to ``records`` (``messages``, ``answer``).

    Returns:
        ``exact_match``: share of right answers; ``n``: of how many; ``truncated``: share without an
        end token, which count as wrong unless they are right as they stand; ``length``: mean tokens;
        ``exact_match_<k>``: share among answers of ``k`` characters.

    Raises:
        ValueError: there are no records, or one is no prompt.
    """
    if not records:
        raise ValueError("there are no records to answer")
    texts, completions = greedy_texts(
        model,
        tokenizer,
        records,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        context_length=context_length,
    )
    right = [is_right(record, text) for record, text in zip(records, texts, strict=True)]
    by_size: dict[int, list[bool]] = {}
    for record, found in zip(records, right, strict=True):
        by_size.setdefault(len(str(record["answer"]).strip()), []).append(found)
    return {
        "exact_match": sum(right) / len(right),
        "n": float(len(right)),
        "truncated": float((~completions.finished).double().mean()),
        "length": float(completions.lengths.double().mean()),
        **{f"exact_match_{size}": sum(found) / len(found) for size, found in sorted(by_size.items())},
    }
