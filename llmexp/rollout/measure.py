"""How often a model's likeliest answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmexp.model.decoder import Decoder
from llmexp.rollout.engine import completion_texts, generate
from llmexp.rollout.prompts import prompt_ids
from llmexp.rollout.rewards.exact_answer import same_answer
from llmexp.rollout.sampling import Sampling


def exact_match(
    model: Decoder,
    tokenizer: Any,
    records: Sequence[dict[str, Any]],
    *,
    max_new_tokens: int,
    batch_size: int = 256,
    context_length: int | None = None,
) -> dict[str, float]:
    """Greedy answers to ``records`` (``messages``, ``answer``), compared as the reward exact_answer does.

    Returns:
        ``exact_match``: share of right answers; ``n``: of how many; ``truncated``: share without an
        end token, which count as wrong unless they are right as they stand; ``length``: mean tokens;
        ``exact_match_<k>``: share among answers of ``k`` characters.

    Raises:
        ValueError: there are no records, or one is no prompt.
    """
    if not records:
        raise ValueError("there are no records to answer")
    longest = None if context_length is None else context_length - 1
    prompts = [prompt_ids(tokenizer, record, longest=longest) for record in records]
    completions = generate(
        model,
        prompts,
        Sampling(temperature=0, max_new_tokens=max_new_tokens),
        [0] * len(prompts),  # nothing is drawn at temperature 0
        tokenizer.end_ids,
        batch_size=batch_size,
        context_length=context_length,
        vocab_size=tokenizer.vocab_size,
    )
    texts = completion_texts(tokenizer, completions)
    answers = [str(record["answer"]).strip() for record in records]
    right = [same_answer(text.strip(), answer) for text, answer in zip(texts, answers, strict=True)]
    by_size: dict[int, list[bool]] = {}
    for answer, is_right in zip(answers, right, strict=True):
        by_size.setdefault(len(answer), []).append(is_right)
    return {
        "exact_match": sum(right) / len(right),
        "n": float(len(right)),
        "truncated": float((~completions.finished).double().mean()),
        "length": float(completions.lengths.double().mean()),
        **{f"exact_match_{size}": sum(found) / len(found) for size, found in sorted(by_size.items())},
    }
