"""``llmexp generate``: complete prompts with a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.cli.models import OpenModel, find_model, open_model
from llmexp.cli.places import places_of, verb_parser
from llmexp.cli.sampling import add_sampling, refuse_settings, sampling_of
from llmexp.cli.terminal import print_json
from llmexp.cli.visible import visible
from llmexp.config.mistakes import UserError
from llmexp.config.spec import as_data
from llmexp.rollout.config import SamplingSpec

EXAMPLES = """  llmexp generate last "def main("
  llmexp generate last/pretrain "The module" -n 3 --temperature 0.8 --seed 7
  llmexp generate last --chat "What is 2+3?" --temperature 0
  llmexp generate last --file prompts.txt --json > completions.json
  echo "What does json.dumps do?" | llmexp generate last --chat
  llmexp generate path/to/a/hugging_face_folder "Once upon a time\""""

BATCH = 32
"""Completions that are generated at a time when nobody watches."""


@dataclass(frozen=True)
class Wanted:
    """One completion to come."""

    prompt: str
    ids: list[int]
    index: int
    """Which of the prompt's completions, from 0."""
    key: int
    """Of its random numbers: seed, number of the prompt and index, so that more prompts change no text."""


def main(args: list[str]) -> int:
    """Print completions; exit code 2 for a flag out of range or a prompt that does not fit."""
    given = _arguments().parse_intermixed_args(args)
    spec = sampling_of(given)
    if given.n < 1:
        raise UserError(f"-n {given.n} is out of range: give a value of at least 1")
    places = places_of(given)
    prompts = _prompts(given)
    found = find_model(given.model, places)
    model = open_model(found, given.device)
    wanted = list(_wanted(prompts, model, given))
    try:
        if given.json:
            print_json(_as_json(model, wanted, spec, given))
        elif len(wanted) == 1 or sys.stdout.isatty():
            _stream(model, wanted, spec, given)
        else:
            for one, (text, _, _) in zip(wanted, _batches(model, wanted, spec), strict=True):
                sys.stdout.write(f"{_heading(one, given, len(wanted))}{visible(text)}\n")
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return 130
    return 0


def _arguments() -> argparse.ArgumentParser:
    made = verb_parser("generate", "Complete prompts with a model, token by token.", EXAMPLES)
    made.add_argument(
        "model", metavar="MODEL", help="RUN, RUN/STAGE, last, a fingerprint, or a model's folder"
    )
    made.add_argument("prompts", nargs="*", metavar="PROMPT", help="texts to go on from")
    made.add_argument(
        "--file", metavar="FILE", help="more prompts, one a line (- and no prompt: standard input)"
    )
    made.add_argument("--chat", action="store_true", help="each prompt is what a user says: chat template")
    made.add_argument("-n", type=int, default=1, metavar="N", help="completions of each prompt (default: 1)")
    add_sampling(made)
    return made


def _prompts(given: argparse.Namespace) -> list[str]:
    """Prompts of the command line, then of the file; of standard input where neither is given.

    Raises:
        UserError: there is no prompt, one is a setting, or the file cannot be read as text.
    """
    prompts = list(given.prompts)
    refuse_settings(prompts)
    if given.file not in (None, "-"):
        try:
            prompts += _lines(Path(given.file).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--file {given.file} cannot be read: {error}") from error
    elif given.file == "-" or not (prompts or sys.stdin.isatty()):
        prompts += _lines(sys.stdin.read())
    if not prompts:
        raise UserError("there is no prompt: give one as an argument, by --file, or on standard input")
    return prompts


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _wanted(prompts: list[str], model: OpenModel, given: argparse.Namespace) -> Iterator[Wanted]:
    from llmexp.rollout.sampling import completion_key

    for number, prompt in enumerate(prompts):
        ids = prompt_ids(model, prompt, chat=given.chat, number=number + 1)
        for index in range(given.n):
            yield Wanted(prompt, ids, index, completion_key(given.seed, number, index))


def prompt_ids(model: OpenModel, prompt: str, *, chat: bool, number: int) -> list[int]:
    """Token ids of a prompt.

    Raises:
        UserError: it does not fit, or there is nothing to begin with; names it by ``number``.
    """
    from llmexp.tokenizer.chat import ChatError

    tokenizer = model.tokenizer
    if chat:
        try:
            ids = tokenizer.encode_prompt([{"role": "user", "content": prompt}])
        except ChatError as error:
            raise UserError(
                f"--chat: {model.found.label} cannot take part in a conversation: {error}"
            ) from error
    else:
        ids = tokenizer.encode(prompt, bos=True)
    if not ids:
        start = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
        if start is None:
            raise UserError(f"prompt {number} is empty, and this tokenizer has no token to begin a text with")
        ids = [start]
    if len(ids) >= model.context_length:
        raise UserError(
            f"prompt {number} has {len(ids)} tokens and the model's context {model.context_length}: "
            "there is no room for a completion"
        )
    return ids


def _stream(model: OpenModel, wanted: list[Wanted], spec: SamplingSpec, given: argparse.Namespace) -> None:
    """One completion after the other, each piece of text as soon as it is there."""
    from llmexp.rollout.engine import stream

    for one in wanted:
        sys.stdout.write(_heading(one, given, len(wanted)))
        pieces = stream(
            model.decoder,
            model.tokenizer,
            one.ids,
            spec.build(),
            one.key,
            model.tokenizer.end_ids,
            context_length=model.context_length,
        )
        for piece in pieces:
            sys.stdout.write(visible(piece))
            sys.stdout.flush()
        sys.stdout.write("\n")


def _heading(one: Wanted, given: argparse.Namespace, n_wanted: int) -> str:
    """What tells completions apart; empty where there is one."""
    if n_wanted == 1:
        return ""
    number = f" [{one.index + 1}/{given.n}]" if given.n > 1 else ""
    return f"== {visible(one.prompt)}{number}\n"


def _batches(model: OpenModel, wanted: list[Wanted], spec: SamplingSpec) -> Iterator[tuple[str, int, bool]]:
    """Text, number of tokens (the end token included) and whether it ended by itself, for each."""
    from llmexp.rollout.engine import completion_texts, generate

    for start in range(0, len(wanted), BATCH):
        part = wanted[start : start + BATCH]
        made = generate(
            model.decoder,
            [one.ids for one in part],
            spec.build(),
            [one.key for one in part],
            model.tokenizer.end_ids,
            batch_size=BATCH,
            context_length=model.context_length,
            vocab_size=model.tokenizer.vocab_size,
        )
        texts = completion_texts(model.tokenizer, made)
        yield from zip(texts, made.lengths.tolist(), made.finished.tolist(), strict=True)


def _as_json(
    model: OpenModel, wanted: list[Wanted], spec: SamplingSpec, given: argparse.Namespace
) -> dict[str, Any]:
    """``finish_reason``: ``stop`` at an end token, ``length`` where the limit or the context cut it."""
    sampling = {name: value for name, value in as_data(spec).items() if name != "_target_"}
    completions = [
        {
            "prompt": one.prompt,
            "index": one.index,
            "completion": text,
            "prompt_tokens": len(one.ids),
            "completion_tokens": tokens,
            "finish_reason": "stop" if finished else "length",
        }
        for one, (text, tokens, finished) in zip(wanted, _batches(model, wanted, spec), strict=True)
    ]
    return {
        "model": {"reference": model.found.label, "path": str(model.found.folder)},
        "chat": given.chat,
        "seed": given.seed,
        "sampling": sampling,
        "completions": completions,
    }
