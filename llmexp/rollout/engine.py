"""Completions in batches, with a KV cache. Shapes: rows = prompts given, longest = longest completion.

Prompts of different lengths are padded on the left, so that all rows write the same cache slots;
padding is a document of its own and positions count from a row's first real token, so a row's
text does not depend on its neighbours. Equal prompts are read once and their cache rows copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llmexp.model.decoder import Decoder
from llmexp.rollout.sampling import Sampling, draw

UNWRITTEN = -1
"""Id of a place where nothing was generated; no token's id."""

COMPACT_BELOW = 0.75
"""Finished rows leave the cache once those going fall to this share of it: leaving copies the rest."""


@dataclass
class Completions:
    """What was generated; row ``i`` answers prompt ``i``."""

    ids: Tensor
    """(rows, longest) int64; the end token included, the pad id after it."""
    logprobs: Tensor
    """(rows, longest) float32, see :func:`llmexp.rollout.sampling.draw`; 0 on padding."""
    lengths: Tensor
    """(rows,) int64: tokens up to and including the end token."""
    finished: Tensor
    """(rows,) bool: ended by an end token, not cut off."""

    @property
    def mask(self) -> Tensor:
        """(rows, longest) bool: the generated tokens. Not told by id: padding may equal an end id."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def select(self, rows: Sequence[int]) -> Completions:
        """The given rows, in that order."""
        where = torch.tensor(rows, dtype=torch.int64, device=self.ids.device)
        return Completions(self.ids[where], self.logprobs[where], self.lengths[where], self.finished[where])

    def answer_ids(self, row: int) -> list[int]:
        """The tokens of ``row`` without the end token."""
        length = int(self.lengths[row]) - int(self.finished[row])
        return self.ids[row, :length].tolist()


def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    keys: Sequence[int],
    stop_ids: Iterable[int],
    *,
    pad_id: int = 0,
    batch_size: int = 256,
    context_length: int | None = None,
    vocab_size: int | None = None,
) -> Completions:
    """Continue each prompt until an end token, ``sampling.max_new_tokens`` or the end of the context.

    Args:
        model: a decoder with ``new_cache``; run in eval mode, without gradients, then set back.
        prompts: token ids, at least one each.
        sampling: see there.
        keys: one a prompt, see :func:`llmexp.rollout.sampling.completion_key`.
        stop_ids: ids that end a completion.
        pad_id: fills rows behind their end.
        batch_size: rows generated at a time; changes memory and speed, not the text.
        context_length: positions that the model covers; None sets no limit.
        vocab_size: of the tokenizer; a model may have more rows (padding), which are never drawn.

    Raises:
        ValueError: an empty prompt, one that fills the context, or fewer keys than prompts.
        FloatingPointError: logits that are not finite.
    """
    _check(prompts, keys, context_length)
    device = next(model.parameters()).device
    width = sampling.max_new_tokens
    ids = torch.full((len(prompts), width), UNWRITTEN, device=device)
    logprobs = torch.zeros(len(prompts), width, device=device)
    # Equal lengths together need no padding, and equal prompts together are read once.
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row]), tuple(prompts[row])))
    ends = torch.tensor(sorted(stop_ids), dtype=torch.int64, device=device)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        where = torch.tensor(rows, device=device)
        batch = [prompts[row] for row in rows]
        row_keys = torch.tensor([keys[row] for row in rows], device=device)
        steps = _decode(model, batch, sampling, row_keys, ends, pad_id, context_length, vocab_size)
        for position, (live, new_ids, new_logprobs) in enumerate(steps):
            ids[where[live], position] = new_ids
            logprobs[where[live], position] = new_logprobs
    lengths, finished = ended(ids, ends)
    longest = int(lengths.max()) if len(prompts) else 0
    ids = torch.where(ids == UNWRITTEN, pad_id, ids)
    return Completions(ids[:, :longest], logprobs[:, :longest], lengths, finished)


def ended(ids: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths (rows,) int64, the end token included, and whether there is one (rows,) bool.

    ``ids`` (rows, longest) int64, ``UNWRITTEN`` where nothing was generated; ``ends`` are the ids of
    *all* end tokens. A row ends with the first of them: whatever follows is no part of the completion.
    """
    is_end = torch.isin(ids, ends)
    finished = is_end.any(-1)
    return torch.where(finished, is_end.int().argmax(-1) + 1, (ids != UNWRITTEN).sum(-1)), finished


def stream(
    model: Decoder,
    tokenizer: Any,
    prompt: Sequence[int],
    sampling: Sampling,
    key: int,
    stop_ids: Iterable[int],
    *,
    context_length: int | None = None,
) -> Iterator[str]:
    """The completion of one prompt as text, piece by piece; the pieces join to the whole text.

    A piece ends where a character ends: bytes of an unfinished one wait for the next token.
    Arguments and errors as for :func:`generate`.
    """
    _check([prompt], [key], context_length)
    device = next(model.parameters()).device
    ends = torch.tensor(sorted(stop_ids), dtype=torch.int64, device=device)
    keys, size = torch.tensor([key], device=device), tokenizer.vocab_size
    steps = _decode(model, [prompt], sampling, keys, ends, 0, context_length, size)
    ids = (int(step_ids[0]) for _, step_ids, _ in steps)
    stops = set(ends.tolist())
    yield from text_pieces(tokenizer, (token for token in ids if token not in stops))


def text_pieces(tokenizer: Any, ids: Iterable[int]) -> Iterator[str]:
    """Text of a stream of token ids, special tokens left out, as soon as it can no longer change.

    An unfinished UTF-8 sequence decodes to one U+FFFD at the end, so that one character is held
    back. Tokens before the last settled piece stay as context: some tokenizers drop a leading space.
    """
    window: list[int] = []
    context = shown = 0  # how many tokens of the window are context, how many characters are out
    for token in ids:
        window.append(token)
        text = tokenizer.decode(window, skip_special=True)
        stable = text[:-1] if text.endswith("\ufffd") else text
        if len(stable) > shown:
            yield stable[shown:]
            shown = len(stable)
        if stable == text and text:
            window = window[context:]
            context, shown = len(window), len(tokenizer.decode(window, skip_special=True))
    rest = tokenizer.decode(window, skip_special=True)[shown:]
    if rest:
        yield rest


def completion_texts(tokenizer: Any, completions: Completions) -> list[str]:
    """Each row as text, without its end token and without special tokens."""
    rows = range(completions.ids.shape[0])
    return [tokenizer.decode(completions.answer_ids(row), skip_special=True) for row in rows]


def _check(prompts: Sequence[Sequence[int]], keys: Sequence[int], context_length: int | None) -> None:
    if len(keys) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts need as many keys, {len(keys)} were given")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {row} is empty: a completion needs at least one token before it")
        if context_length is not None and len(prompt) >= context_length:
            raise ValueError(
                f"prompt {row} has {len(prompt)} tokens, the model's context {context_length}: "
                "there is no room for a completion"
            )


@contextmanager
def _inference(model: Decoder) -> Iterator[None]:
    """Eval mode and no gradients; not ``inference_mode``, whose tensors a loss may not use later."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _decode(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    keys: Tensor,
    ends: Tensor,
    pad_id: int,
    context_length: int | None,
    vocab_size: int | None,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """One step a token: (rows still going, their new ids, log-probabilities), each (live,)."""
    device = keys.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    limits = torch.full_like(lengths, sampling.max_new_tokens)
    if context_length is not None:
        limits = limits.minimum(context_length - lengths)
    rows = torch.arange(len(prompts), device=device)  # the row that each cache row belongs to
    live = rows  # indices into the cache's rows
    with _inference(model):
        cache, logits = _read_prompts(model, prompts, int(limits.max()), pad_id)
    for position in range(int(limits.max())):
        ids, logprobs = draw(logits, keys[rows[live]], position, sampling, vocab_size=vocab_size)
        yield rows[live], ids, logprobs
        going = ~torch.isin(ids, ends) & (position + 1 < limits[rows[live]])
        live, ids = live[going], ids[going]
        if len(live) == 0:
            return
        with _inference(model):
            if len(live) <= COMPACT_BELOW * len(rows):
                cache.select(live)
                rows, live = rows[live], torch.arange(len(live), device=device)
            tokens = torch.full((len(rows), 1), pad_id, device=device)
            tokens[live, 0] = ids
            # No document ids: the cache takes these tokens for the document of the prompt, 0.
            logits = model(tokens, positions=(lengths[rows] + position)[:, None], cache=cache)[live, -1]


def _read_prompts(
    model: Decoder, prompts: Sequence[Sequence[int]], room: int, pad_id: int
) -> tuple[Any, Tensor]:
    """A cache that holds the prompts with ``room`` tokens to spare, and their next logits (rows, vocab)."""
    device = next(model.parameters()).device
    numbers: dict[tuple[int, ...], int] = {}
    copies = [numbers.setdefault(tuple(prompt), len(numbers)) for prompt in prompts]
    longest = max(map(len, numbers))
    padding = torch.tensor([longest - len(prompt) for prompt in numbers], device=device)
    padded = [[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in numbers]
    positions = torch.arange(longest, device=device) - padding[:, None]
    documents = torch.where(positions < 0, -1, 0).to(torch.int32) if bool(padding.any()) else None
    cache = model.new_cache(len(numbers), longest + room)
    ids, positions = torch.tensor(padded, device=device), positions.clamp(min=0)
    logits = model(ids, positions=positions, doc_ids=documents, cache=cache, last_only=True)[:, -1]
    if len(numbers) < len(prompts):
        rows = torch.tensor(copies, device=device)
        cache.select(rows)
        logits = logits[rows]
    return cache, logits
