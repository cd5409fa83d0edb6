"""``llmexp status``: runs, their stages, and how far each is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from llmexp.cli.places import places_of, run_name, verb_parser
from llmexp.cli.terminal import console, print_json, row, table
from llmexp.launch.status import RunState, StageState, run_state
from llmexp.stage.runs import pipeline_runs
from llmexp.track.progress import clock, short

if TYPE_CHECKING:
    from rich.text import Text

EXAMPLES = """  llmexp status
  llmexp status --all
  llmexp status --json
  llmexp status --outputs /scratch/me/outputs"""

SHOWN = 10
"""Runs that are shown without --all."""

SAID = 200
"""Characters of an error that are shown; `llmexp logs` has all."""

COLOURS = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "KILLED": "red",
    "interrupted": "yellow",
    "waiting": "dim",
}


def main(args: list[str]) -> int:
    """Print the runs, newest last."""
    made = verb_parser("status", "The runs and their stages, newest last.", EXAMPLES)
    made.add_argument("--all", action="store_true", help=f"all runs, not only the last {SHOWN}")
    given = made.parse_args(args)
    places = places_of(given)
    runs = pipeline_runs(places.runs)
    chosen = runs if given.all else runs[-SHOWN:]
    states = [run_state(run_dir, run_name(run_dir, places)) for run_dir in chosen]
    if given.json:
        print_json({"runs": [state.as_json() for state in states], "earlier": len(runs) - len(chosen)})
        return 0
    if not states:
        console().print(
            f"no runs in {places.runs} yet. Start one: llmexp experiment=quickstart", markup=False
        )
        return 0
    _print(states, len(runs) - len(chosen))
    return 0


def _print(states: list[RunState], earlier: int) -> None:
    """Each run's line stands outside its table: its name is what people copy, and must not be broken."""
    shown = console()
    for state in states:
        head = [(state.run, "bold"), "  ", _coloured(state.state)]
        head += [f"  {part}" for part in (_clock(state.seconds), _begun(state.created)) if part]
        shown.print(_line(*head), soft_wrap=True)
        if all(stage.cached for stage in state.stages):
            count = "the stage was" if len(state.stages) == 1 else f"all {len(state.stages)} stages were"
            shown.print(f"  {count} found in the store\n", style="dim")
            continue
        made = table("  stage", "state", "step>", "loss>", "tokens/s>", "time>", "left>", "")
        for stage in state.stages:
            row(made, _cells(stage))
        shown.print(made)
        for stage in state.stages:
            if stage.error:
                shown.print(_line(f"  {stage.name}: ", (_first_line(stage.error), "red")), soft_wrap=True)
        shown.print()
    if earlier:
        shown.print(
            f"{earlier} earlier {'run' if earlier == 1 else 'runs'}: llmexp status --all", style="dim"
        )


def _cells(stage: StageState) -> list[Any]:
    """A stage's row."""
    # A policy's loss is near zero whatever it has learned.
    figure = "" if stage.loss is None else f"{stage.loss:.4g}"
    figure = figure if stage.reward is None else f"reward {stage.reward:.3g}"
    speed = "" if stage.tokens_per_second is None else short(stage.tokens_per_second)
    left = _clock(stage.seconds_left)
    return [
        "  " + stage.name,
        _coloured(stage.state),
        stage.step,
        figure,
        speed,
        _clock(stage.seconds),
        left,
        "cached" if stage.cached else "",
    ]


def _line(*parts: Any) -> Text:
    from rich.text import Text

    return Text.assemble(*parts)


def _coloured(state: str) -> Text:
    from rich.text import Text

    return Text(state, style=COLOURS.get(state, ""))


def _clock(seconds: float | None) -> str:
    return "" if seconds is None else clock(seconds)


def _begun(created: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created))


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= SAID else line[: SAID - 1] + "…"
