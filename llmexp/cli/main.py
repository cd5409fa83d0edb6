"""``llmexp [VERB] …``: finds the verb, runs it, and words what went wrong. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import itertools
import os
import sys
import traceback

VERBS = {
    "run": "compose and run a pipeline (the default verb)",
    "check": "find every mistake of a composition, run nothing",
    "plan": "parameters, FLOPs, memory, time of a composition",
    "prove": "prove resume, packing or export on this machine",
    "config": "list groups, options, experiments; or print a composed node with its sources",
    "status": "the runs and their stages",
    "logs": "events and progress of a run",
    "show": "one run or artifact in full",
    "diff": "what differs between two runs: configuration and results",
    "store": "list, show, verify, prune artifacts",
    "sync": "deliver what was tracked while the server was away",
    "report": "write a run's report again and say where it is",
    "generate": "complete prompts with a model",
    "chat": "talk to a model",
    "doctor": "what this machine has, and what is wrong with it",
}
"""Every verb and its one line; each lives in the module of its name beside this one."""

WORKING = ("run", "prove")
"""Verbs that do more than print: a broken pipe there is a failure."""
PRINTING = {"--help", "-h", "--version", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc"}
"""Flags with which ``run`` does no more than print either."""

HELP = """llmexp: the whole life of a language model from one declarative configuration.

usage: llmexp [VERB] [OVERRIDES] [FLAGS]      `llmexp run` alone trains the default model

  llmexp experiment=quickstart                     raw text to a chat model, in minutes
  llmexp data=text_files data.path=my_notes/ model=tiny trainer=short    pretrain on your own folder
  llmexp check model=llama3_8b parallel=ddp        find mistakes before they cost anything
  llmexp -m optimizer.lr=1e-3,3e-3                 sweep

verbs:
{verbs}

`llmexp VERB --help` shows examples. `llmexp config` lists everything that can be set.
"""


def main(argv: list[str] | None = None) -> int:
    """Run a verb. Exit codes: 0 done, 1 failed while running, 2 a person's mistake, 130 interrupted."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who called: nothing to read, and nobody reads
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]  # a bare word starts no training
    whole_trace = "--traceback" in args
    args = [arg for arg in args if arg != "--traceback"]
    verb = args.pop(0) if args and args[0] in VERBS else "run"
    try:
        code = _called(verb, args)
        print(end="", flush=True)  # that the reader is gone shows here, not when the interpreter ends
        return code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _only_prints(verb, args):
            # The reader of what was printed (head, less) is gone; that is its right.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _told(error, whole=whole_trace)


def _called(verb: str, args: list[str]) -> int:
    """Run the verb; what says how to call llmexp loads none."""
    if verb == "run" and (late := _late_verb(args)):
        from llmexp.config.mistakes import UserError

        raise UserError(f"the verb comes first: llmexp {late} {args[0]} …")
    if verb == "run" and args and args[0].isalpha():  # an override has a sign in it: = ~ + @
        from llmexp.config.mistakes import UserError

        near = difflib.get_close_matches(args[0], VERBS, 1)
        raise UserError(
            f"llmexp has no verb '{args[0]}'"
            + (f"; the nearest is '{near[0]}'" if near else "")
            + ". `llmexp --help` lists them; an override is written key=value."
        )
    if verb == "run" and args[:1] in (["--help"], ["-h"]):
        width = max(map(len, VERBS))
        sys.stdout.write(
            HELP.format(verbs="\n".join(f"  {name:<{width}}  {line}" for name, line in VERBS.items()))
        )
        return 0
    if verb == "run" and args[:1] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"llmexp {version('llmexp')}\n")
        return 0
    return int(importlib.import_module(f"llmexp.cli.{verb}").main(args))


def _late_verb(args: list[str]) -> str | None:
    """A verb that stands behind overrides; what follows a flag may be its value."""
    pairs = itertools.pairwise(args)
    return next((arg for before, arg in pairs if arg in VERBS and not before.startswith("-")), None)


def _only_prints(verb: str, args: list[str]) -> bool:
    return verb not in WORKING or any(arg.partition("=")[0] in PRINTING for arg in args)


def _told(error: BaseException, *, whole: bool) -> int:
    """Word an error for the person, with its ``whole`` trace on request, and give the exit code."""
    from llmexp.cli.errors import code_and_text
    from llmexp.track.masking import without_credentials

    code, text = code_and_text(error)
    with contextlib.suppress(BrokenPipeError):
        if whole:
            sys.stderr.write(without_credentials("".join(traceback.format_exception(error))))
        sys.stderr.write(without_credentials(text.rstrip()) + "\n")
    return code
