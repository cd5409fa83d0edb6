"""``llmexp logs RUN[/STAGE]``: what a run logged, in the order of time, also while it goes on."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from llmexp.cli.places import places_of, run_and_stage, run_name, verb_parser
from llmexp.launch.logs import Entry, Log, follow
from llmexp.stage.runs import stage_named
from llmexp.track.params import jsonable

EXAMPLES = """  llmexp logs last
  llmexp logs last -f
  llmexp logs last/pretrain -n 20
  llmexp logs last --stage sft --json"""


def main(args: list[str]) -> int:
    """Print the log; with -f until the run is over."""
    made = verb_parser("logs", "Events and metrics of a run, in the order of time.", EXAMPLES)
    made.add_argument(
        "run",
        nargs="?",
        default="last",
        help="RUN or RUN/STAGE: a folder, a name that `status` shows or a part of it, or last (default)",
    )
    made.add_argument("-f", "--follow", action="store_true", help="go on until the run ends, across restarts")
    made.add_argument("--stage", help="only this stage")
    made.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines of what is there")
    given = made.parse_args(args)
    places = places_of(given)
    run_dir, stage = run_and_stage(given.run, places)
    stage = stage_named(given.stage, run_dir, places.runs) if given.stage else stage
    log = Log(run_dir, stage)
    write = _write_json if given.json else _write_text
    try:
        for entry in _last(log.new(), given.lines):
            write(entry)
        if given.follow:
            for entry in follow(log, _say):
                write(entry)
    except KeyboardInterrupt:
        return 130
    for name, text in log.errors():
        write(Entry(time.time(), name, "error_text", {"text": text}))
    if not given.json and not given.follow:
        _say(f"run {run_name(run_dir, places)}{'/' + stage if stage else ''}: {log.state()}")
    return 0


def _last(entries: Iterable[Entry], count: int | None) -> Iterable[Entry]:
    return entries if count is None else deque(entries, maxlen=max(0, count))


def _say(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(text + "\n")


def _write_json(entry: Entry) -> None:
    """One JSON object a line."""
    sys.stdout.write(json.dumps(jsonable(asdict(entry)), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _write_text(entry: Entry) -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(entry.time))
    if entry.kind == "error_text":
        sys.stdout.write(f"\n{entry.stage} failed:\n{entry.fields['text'].rstrip()}\n")
    elif entry.kind == "metrics":
        values = "  ".join(f"{key} {value:.4g}" for key, value in entry.fields.items())
        sys.stdout.write(f"{clock}  {entry.stage:<14}  step {entry.step}  {values}\n")
    else:
        fields = "  ".join(f"{key}={_short(value)}" for key, value in entry.fields.items())
        sys.stdout.write(f"{clock}  {entry.stage:<14}  {entry.kind}  {fields}".rstrip() + "\n")
    sys.stdout.flush()


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:159] + "…"
