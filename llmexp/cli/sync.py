"""``llmexp sync``: deliver what was tracked while a server was away, or where there was no network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.cli.places import Places, places_of, run_and_stage, run_name, verb_parser
from llmexp.cli.terminal import console, print_json, row, table
from llmexp.config.mistakes import UserError
from llmexp.config.spec import settings
from llmexp.stage.runs import PipelineRecord, pipeline_runs
from llmexp.track.config import DeliveredSpec
from llmexp.track.runs import RUN_FILE, Run, read_run

EXAMPLES = """  llmexp sync
  llmexp sync last
  llmexp sync outputs/runs/2026-01-31/12-00-00-quickstart-3f9a2c
  llmexp sync last --uri http://mlflow.example.org:5000"""


@dataclass(frozen=True)
class Kept:
    """A run folder whose tracking is delivered somewhere."""

    run_dir: Path
    run: Run


def main(args: list[str]) -> int:
    """Deliver; exit code 1 when something could not be."""
    made = verb_parser(
        "sync", "Deliver what runs tracked and their server has not got. Without RUN: all runs.", EXAMPLES
    )
    made.add_argument(
        "runs", nargs="*", metavar="RUN", help="runs, or RUN/STAGE; default: all that are not delivered"
    )
    made.add_argument("--uri", help="deliver to this address instead of the one that the run was tracked at")
    given = made.parse_args(args)
    places = places_of(given)
    results = _delivered(_kept(given.runs, places), given.uri, places)
    shown = [r for r in results if given.runs or r["delivered"] or r["remaining"] or r["problem"]]
    for result in shown:
        result["run"] = run_name(Path(result["path"]), places)
    if given.json:
        print_json({"runs": shown})
    else:
        _print(shown)
    return 1 if any(result["problem"] for result in results) else 0


def _kept(references: list[str], places: Places) -> list[Kept]:
    """Runs with a destination: parents before their stages, each once.

    Raises:
        UserError: a run that was named is tracked nowhere.
    """
    found: dict[Path, Kept] = {}
    for run_dir, stage in [run_and_stage(r, places) for r in references] or [
        (run, None) for run in pipeline_runs(places.runs)
    ]:
        folders = [folder for folder in _folders(run_dir, stage) if (folder / RUN_FILE).is_file()]
        tracked = [Kept(folder, run) for folder in folders if (run := read_run(folder)).tracking]
        if references and not tracked:
            name = run_name(run_dir, places)
            raise UserError(f"run {name} is tracked in its folder alone: there is nowhere to deliver it to")
        found |= {
            kept.run_dir.absolute(): kept for kept in tracked if references or kept.run.status != "RUNNING"
        }
    return list(found.values())


def _folders(run_dir: Path, stage: str | None) -> Iterator[Path]:
    links = PipelineRecord.read(run_dir).stages
    if stage is None:
        yield run_dir
    yield from (Path(link.run_dir) for name, link in links.items() if link.run_dir and stage in (None, name))


def _delivered(runs: list[Kept], uri: str | None, places: Places) -> list[dict[str, Any]]:
    """What was delivered of each run, once each: a pipeline's stages go with it."""
    found: dict[Path, dict[str, Any]] = {}
    for kept in runs:
        if kept.run_dir.resolve() not in found:
            for result in _deliver(kept, uri, places):
                found.setdefault(Path(result["path"]).resolve(), result)
    return list(found.values())


def _deliver(kept: Kept, uri: str | None, places: Places) -> list[dict[str, Any]]:
    from llmexp.track.delivery import Destination, sync
    from llmexp.track.masking import HIDDEN
    from llmexp.track.process import QUIET

    sink, address = kept.run.tracking["sink"], kept.run.tracking["address"]
    if uri is not None:
        address = _address(sink, address, uri, places)
    where = Destination(sink, address)
    shown = where.public()["address"].get("uri", "")
    if HIDDEN in address.get("uri", ""):
        problem = "its address holds a password, which is not written down: give it with --uri"
        return [_result(kept.run_dir, shown, problem=problem)]
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    return [
        _result(d.run_dir, shown, d.delivered, d.remaining, d.problem) for d in sync([kept.run_dir], where)
    ]


def _address(sink: str, address: dict[str, str], uri: str, places: Places) -> dict[str, str]:
    """The keywords of a sink for another address: what depends on it (where files go) is derived anew.

    Raises:
        UserError: it is no address that the tracker takes.
    """
    kind = next(cls for cls in DeliveredSpec.__subclasses__() if cls.sink == sink)
    fields = {field.name for field in settings(kind)}
    kept: dict[str, Any] = {k: v or None for k, v in address.items() if k in fields and k != "uri"}
    spec = kind(**{**kept, "uri": uri})
    for mistake in spec.check():
        raise UserError(f"--uri {uri}: {mistake.problem}. {mistake.remedy}")
    return spec.address(places.outputs)


def _result(
    run_dir: Path, uri: str, delivered: int = 0, remaining: int = 0, problem: str = ""
) -> dict[str, Any]:
    return {
        "path": str(run_dir),
        "uri": uri,
        "delivered": delivered,
        "remaining": remaining,
        "problem": problem,
    }


def _print(results: list[dict[str, Any]]) -> None:
    shown = console()
    if not results:
        shown.print("everything is delivered")
        return
    made = table("run", "to", "delivered>", "remaining>", "")
    for result in results:
        row(
            made,
            [
                result["run"],
                result["uri"],
                result["delivered"],
                result["remaining"],
                _short(result["problem"]),
            ],
            style="red" if result["problem"] else "",
        )
    shown.print(made)


def _short(problem: str) -> str:
    """A problem in a line or two; --json has all of it."""
    return problem if len(problem) <= 160 else problem[:159] + "…"
