"""``llmexp chat``: talk to a model on the terminal, or one user turn a line from a file."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llmexp.cli.models import OpenModel, find_model, open_model
from llmexp.cli.places import add_places, places_of
from llmexp.cli.sampling import add_sampling, sampling_of
from llmexp.cli.visible import visible
from llmexp.config.mistakes import UserError
from llmexp.model.config import n_params
from llmexp.rollout.config import SamplingSpec
from llmexp.track.progress import short

EXAMPLES = """  llmexp chat last
  llmexp chat last/sft --temperature 0 --system "Answer in one word."
  llmexp chat path/to/a/hugging_face_folder
  echo 'What is 27 + 36?' | llmexp chat last --temperature 0"""

HELP = "/reset forgets the conversation · /system TEXT says who the model is · /quit, or Ctrl-D, leaves"
LARGE = 1_000_000_000
"""Parameters from which on a model is no longer called small."""
PROMPT = "> "


@dataclass
class Conversation:
    """What was said, the oldest turn first."""

    model: OpenModel
    sampling: SamplingSpec
    seed: int
    system: str = ""
    turns: list[dict[str, Any]] = field(default_factory=list)
    replies: int = 0
    """Of the whole session: each is drawn with random numbers of its own."""

    def reset(self) -> None:
        """Forget the turns; the system's words stay."""
        self.turns.clear()

    def hear(self, text: str) -> int:
        """Add what the user says; drop the oldest turns until a reply has room, and return how many.

        Raises:
            UserError: the text alone leaves no room, or the chat template refuses it. It is not added.
        """
        from llmexp.tokenizer.chat import ChatError

        turns = [*self.turns, {"role": "user", "content": text}]
        room = self.model.context_length - min(self.sampling.max_new_tokens, self.model.context_length // 2)
        dropped = 0
        try:
            while (length := len(self._ids(turns))) > room:
                # A conversation begins with the user: the reply to a dropped turn goes too.
                rest = next((k for k in range(1, len(turns)) if turns[k]["role"] == "user"), None)
                if rest is None:
                    raise UserError(f"that is {length} tokens; this model has room for {room}")
                turns, dropped = turns[rest:], dropped + rest
        except ChatError as error:
            raise UserError(str(error)) from error
        self.turns = turns
        return dropped

    def reply(self) -> Generator[str, None, None]:
        """The model's answer, piece by piece; what came joins the conversation, also when it is cut off."""
        from llmexp.rollout.engine import stream
        from llmexp.rollout.sampling import completion_key

        said: list[str] = []
        tokenizer = self.model.tokenizer
        pieces = stream(
            self.model.decoder,
            tokenizer,
            self._ids(self.turns),
            self.sampling.build(),
            completion_key(self.seed, self.replies, 0),
            tokenizer.end_ids,
            context_length=self.model.context_length,
        )
        self.replies += 1
        try:
            for piece in pieces:
                said.append(piece)
                yield piece
        finally:
            self.turns.append({"role": "assistant", "content": "".join(said)})

    def _ids(self, turns: list[dict[str, Any]]) -> list[int]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.model.tokenizer.encode_prompt([*system, *turns])


def main(args: list[str]) -> int:
    """Talk until the user leaves; exit code 2 for a model that cannot hold a conversation."""
    given = _arguments().parse_args(args)
    sampling = sampling_of(given)
    found = find_model(given.model, places_of(given))
    model = open_model(found, given.device)
    if model.tokenizer.chat_template is None:
        raise UserError(
            f"{found.label} has no chat template, so it cannot tell who speaks: "
            f"use `llmexp generate {given.model}`"
        )
    conversation = Conversation(model, sampling, given.seed, given.system)
    for line in about(model):
        _note(line)
    talk(conversation)
    return 0


def _arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="llmexp chat",
        description=f"Talk to a model. {HELP}. Ctrl-C stops a reply. Without a terminal: one turn a line.",
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "model", metavar="MODEL", help="RUN, RUN/STAGE, last, a fingerprint, or a model's folder"
    )
    made.add_argument(
        "--system", default="", metavar="TEXT", help="what the model is told before the first turn"
    )
    add_places(made)
    add_sampling(made, temperature=0.7)
    return made


def about(model: OpenModel) -> Iterator[str]:
    """What a person should know of the model before the first word."""
    count = n_params(model.spec)
    yield f"{model.found.label}: {short(count)} parameters, context of {model.context_length} tokens"
    if model.found.training:
        yield f"trained: {'; then '.join(model.found.training)}"
    else:
        yield "trained: nothing is written down about it in this store"
    if model.found.stage == "pretrain":
        yield "Trained on text alone, never on conversations: expect it to go on writing, not to answer."
    if count < LARGE:
        yield (
            "A model of this size is small: it knows little beyond what it was trained on, "
            "and what it says is often wrong."
        )
    yield HELP


def talk(conversation: Conversation) -> None:
    """One turn after the other until the end of the input or ``/quit``."""
    while True:
        try:
            line = _read()
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            _note("\n/quit, or Ctrl-D, leaves")
            continue
        if line is None or not _turn(conversation, line.strip()):
            return


def _read() -> str | None:
    """The next line; None at the end of the input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline() or None
    # Its import alone gives `input` a history and editing keys.
    import readline  # noqa: F401

    try:
        return input(PROMPT)
    except EOFError:
        sys.stdout.write("\n")
        return None


def _turn(conversation: Conversation, line: str) -> bool:
    """Do what a line says; False when it says to leave."""
    word, _, rest = line.partition(" ")
    if line.startswith("/"):
        if word in ("/quit", "/exit"):
            return False
        _command(conversation, word, rest.strip())
    elif line:
        _answer(conversation, line)
    return True


def _command(conversation: Conversation, word: str, rest: str) -> None:
    if word == "/reset":
        conversation.reset()
        _note("forgotten")
    elif word == "/system":
        conversation.system = rest
        _note(
            "the model is told so from the next turn on" if rest else "the model is told nothing beforehand"
        )
    else:
        _note(HELP if word == "/help" else f"there is no {visible(word)}. {HELP}")


def _answer(conversation: Conversation, text: str) -> None:
    try:
        dropped = conversation.hear(text)
    except UserError as error:
        _note(str(error))
        return
    if dropped:
        _note(f"(the model no longer sees the oldest {dropped} turns: its context is full)")
    reply = conversation.reply()
    with _ctrl_c() as pressed:
        for piece in reply:
            sys.stdout.write(visible(piece))
            sys.stdout.flush()
            if pressed():
                reply.close()
                sys.stdout.write(" …")
                break
    sys.stdout.write("\n")
    sys.stdout.flush()
    if not conversation.turns[-1]["content"].strip():
        _note("(the model ended its turn without a word)")


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; the second time it interrupts.

    An exception that is raised anywhere can be swallowed there, as in a destructor; a flag cannot.
    """
    seen = False

    def handle(*_: object) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, before)


def _note(line: str) -> None:
    """What is not the model's: on standard error, so that standard output holds the replies alone."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
