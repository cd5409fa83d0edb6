"""``llmexp diff A B``: what differs between two runs, stages or artifacts."""

from __future__ import annotations

from typing import Any

from llmexp.cli.places import places_of, verb_parser
from llmexp.cli.subject import Pipeline, Step, Subject, subject
from llmexp.cli.terminal import console, flat, print_json, row, table, value_text
from llmexp.config.mistakes import UserError

EXAMPLES = """  llmexp diff RUN_A RUN_B
  llmexp diff RUN_A/pretrain RUN_B/pretrain
  llmexp diff 3f9a2c 81bd07 --json"""

ABSENT = "–"

SHOWN = 40
"""Rows of results that people are shown."""

Pairs = dict[str, tuple[Any, Any]]
"""Key to the two values that differ; a missing one is None and not in ``has``."""


def main(args: list[str]) -> int:
    """Print what differs in configuration, inputs and results."""
    made = verb_parser("diff", "What differs between two runs, stages (RUN/STAGE) or artifacts.", EXAMPLES)
    made.add_argument("a", help="a run, RUN/STAGE, or an artifact")
    made.add_argument("b", help="another one")
    given = made.parse_args(args)
    places = places_of(given)
    a, b = subject(given.a, places), subject(given.b, places)
    found = differences(a, b)
    if given.json:
        told = {
            part: {key: {"a": x, "b": y} for key, (x, y) in pairs.items()} for part, pairs in found.items()
        }
        print_json({"a": a.label, "b": b.label, **told})
        return 0
    _print(a.label, b.label, found)
    return 0


def differences(a: Subject, b: Subject) -> dict[str, Pairs]:
    """``config``, ``inputs`` and ``results``: flat keys whose values differ.

    Raises:
        UserError: one is a whole pipeline and the other is not.
    """
    if isinstance(a, Pipeline) and isinstance(b, Pipeline):
        return _pipelines(a, b)
    if isinstance(a, Step) and isinstance(b, Step):
        return {part: _pairs(x, y) for part, (x, y) in _parts(a, b).items()}
    whole = a if isinstance(a, Pipeline) else b
    raise UserError(
        f"{whole.label} is a whole run and the other is one stage of one: compare {whole.label}/STAGE with it"
    )


def _pipelines(a: Pipeline, b: Pipeline) -> dict[str, Pairs]:
    found: dict[str, Pairs] = {"config": {}, "inputs": {}, "results": {}}
    both = list(dict.fromkeys([*a.steps, *b.steps]))
    for name in both:
        x, y = a.steps.get(name), b.steps.get(name)
        if x is None or y is None:
            found["config"][name] = (x.stage if x else None, y.stage if y else None)
            continue
        # An artifact that both share was made once: nothing of it can differ.
        if (
            x.artifact
            and y.artifact
            and x.artifact.fingerprint == y.artifact.fingerprint
            and x.run_dir == y.run_dir
        ):
            continue
        for part, (left, right) in _parts(x, y).items():
            found[part] |= {f"{name}.{key}": pair for key, pair in _pairs(left, right).items()}
    return found


def _parts(a: Step, b: Step) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The two sides of each part, flat."""
    inputs = [{need: ", ".join(prints) for need, prints in step.inputs().items()} for step in (a, b)]
    results = [{**flat(step.summary()), **step.metrics()} for step in (a, b)]
    return {
        "config": (_config(a), _config(b)),
        "inputs": (inputs[0], inputs[1]),
        "results": (results[0], results[1]),
    }


def _config(step: Step) -> dict[str, Any]:
    data = flat(step.config())
    return {
        key.removesuffix("._target_") if key != "_target_" else "stage": value for key, value in data.items()
    }


def _pairs(a: dict[str, Any], b: dict[str, Any]) -> Pairs:
    keys = [key for key in dict.fromkeys([*a, *b]) if key]
    return {
        key: (a.get(key), b.get(key))
        for key in keys
        if key not in a or key not in b or not _same(a[key], b[key])
    }


def _same(x: Any, y: Any) -> bool:
    """Equality in which NaN equals itself."""
    return bool(x == y) or (isinstance(x, float) and isinstance(y, float) and x != x and y != y)


def _print(a: str, b: str, found: dict[str, Pairs]) -> None:
    shown = console()
    titles = {"config": "configuration", "inputs": "inputs", "results": "results"}
    for part, pairs in found.items():
        if not pairs:
            continue
        made = table(titles[part], a, b, *(["difference>"] if part == "results" else []))
        rows = list(pairs.items())
        if part == "results":  # what only one side has, such as each of its source files, comes last
            rows.sort(key=lambda item: None in item[1])
            both = sum(None not in pair for pair in pairs.values())
            rows = rows[: max(SHOWN, both)]
        for key, (x, y) in rows:
            row(made, [key, _text(x, part), _text(y, part), *([_change(x, y)] if part == "results" else [])])
        shown.print(made)
        if len(rows) < len(pairs):
            shown.print(f"… and {len(pairs) - len(rows)} more (--json lists all)", style="dim")
        shown.print()
    same = [titles[part] for part, pairs in found.items() if not pairs]
    if same:
        shown.print(f"equal: {', '.join(same)}", style="dim")


def _text(value: Any, part: str) -> str:
    if value is None and part != "config":
        return ABSENT
    text = f"{value:.6g}" if isinstance(value, float) else value_text(value)
    return text if len(text) <= 120 else text[:119] + "…"


def _change(x: Any, y: Any) -> str:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (x, y))
    return f"{y - x:+.4g}" if numbers else ""
