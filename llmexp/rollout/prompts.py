"""Prompts for learning from rewards: records with ``messages``, as token ids, in an order of their own."""

from __future__ import annotations

from typing import Any

import torch

from llmexp.rollout.sampling import completion_key, uniforms


def prompt_ids(tokenizer: Any, record: dict[str, Any], *, longest: int | None = None) -> list[int]:
    """The ids after which the assistant's answer to ``record["messages"]`` begins.

    Raises:
        ValueError: there are no messages, the last is the assistant's already, or there are more than
            ``longest`` ids; the record is named.
    """
    name, messages = record.get("id", "?"), record.get("messages")
    if not messages:
        raise ValueError(f"record {name} has no `messages`: it cannot be a prompt")
    if messages[-1]["role"] == "assistant":
        raise ValueError(f"record {name} ends with an assistant's message: a prompt ends before it")
    ids = tokenizer.encode_prompt(messages)
    if longest is not None and len(ids) > longest:
        raise ValueError(f"record {name} is a prompt of {len(ids)} tokens; there is room for {longest}")
    return ids


class PromptOrder:
    """Prompt number ``n`` of an endless sequence: epoch after epoch, each in an order of its own.

    A pure function of (size, seed, n): nothing has to be stored to go on.
    """

    def __init__(self, size: int, seed: int) -> None:
        if size < 1:
            raise ValueError("there are no prompts")
        self.size, self.seed = size, seed
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def __call__(self, n: int) -> int:
        """Index of the prompt that is ``n``-th in the sequence, both from 0."""
        epoch, place = divmod(n, self.size)
        if epoch != self._epoch:
            keys = torch.arange(self.size, dtype=torch.int64) + completion_key(self.seed, -1, epoch)
            self._epoch, self._order = epoch, uniforms(keys, 0).argsort(stable=True)
        return int(self._order[place])
