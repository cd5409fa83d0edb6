"""What a model writes: exact match on problems with answers, and sample generations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llmexp.evaluate.scores import NothingToScore
from llmexp.rollout import measure
from llmexp.rollout.engine import completion_texts, generate
from llmexp.rollout.prompts import prompt_ids
from llmexp.rollout.sampling import Sampling, completion_key

PROBLEMS_AT_ONCE = 64
"""Problems between two looks at whether to stop."""


@dataclass(frozen=True)
class Writer:
    """A model with what it needs to write text."""

    model: Any
    """A decoder."""
    tokenizer: Any
    context_length: int
    """Positions that the model covers."""

    def write(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[str]:
        """Completions of prompts of token ids, as text without special tokens.

        Prompt ``i`` is drawn from (seed, i): its text depends on no other prompt. A prompt that
        is empty or fills the context has no completion: the empty text.
        """
        room = [i for i, prompt in enumerate(prompts) if 0 < len(prompt) < self.context_length]
        if not room:
            return [""] * len(prompts)
        completions = generate(
            self.model,
            [prompts[i] for i in room],
            sampling,
            [completion_key(seed, i, 0) for i in room],
            self.tokenizer.end_ids,
            context_length=self.context_length,
            vocab_size=self.tokenizer.vocab_size,
        )
        texts = dict(zip(room, completion_texts(self.tokenizer, completions), strict=True))
        return [texts.get(i, "") for i in range(len(prompts))]


def exact_match(
    writer: Writer,
    records: Sequence[dict[str, Any]],
    *,
    max_new_tokens: int,
    done: Callable[[int], None] | None = None,
) -> float:
    """The share of problems (``messages``, ``answer``) whose greedy answer is the record's.

    A prompt that fills the context counts as wrong. ``done`` is called with the number of
    problems answered since its last call; it may raise to stop.

    Raises:
        NothingToScore: there is no problem.
        ValueError: a record is no prompt.
    """
    if not records:
        raise NothingToScore("there is no problem to answer")
    right = 0.0
    for start in range(0, len(records), PROBLEMS_AT_ONCE):
        part = records[start : start + PROBLEMS_AT_ONCE]
        fit = [r for r in part if len(prompt_ids(writer.tokenizer, r)) < writer.context_length]
        if fit:
            found = measure.exact_match(
                writer.model,
                writer.tokenizer,
                fit,
                max_new_tokens=max_new_tokens,
                context_length=writer.context_length,
            )
            right += found["exact_match"] * len(fit)
        if done is not None:
            done(len(part))
    return round(right) / len(records)


def text_samples(writer: Writer, prompts: Sequence[str], sampling: Sampling, seed: int) -> list[str]:
    """How the model goes on from beginnings of free text."""
    ids = [writer.tokenizer.encode(prompt, bos=True) for prompt in prompts]
    return writer.write(ids, sampling, seed)


def chat_samples(writer: Writer, records: Sequence[dict[str, Any]], max_new_tokens: int) -> list[str]:
    """The model's likeliest answers to the messages of records."""
    ids = [prompt_ids(writer.tokenizer, record) for record in records]
    return writer.write(ids, Sampling(temperature=0.0, max_new_tokens=max_new_tokens), seed=0)


def question(record: dict[str, Any]) -> str:
    """The messages of a problem as a reader sees them: the only one plain, several with their roles."""
    messages = record["messages"]
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)
