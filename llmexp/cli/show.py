"""``llmexp show RUN|RUN/STAGE|ARTIFACT``: everything about one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.cli.places import Places, places_of, verb_parser
from llmexp.cli.subject import Pipeline, Step, subject
from llmexp.cli.terminal import console, flat, print_json, row, size, table, value_text
from llmexp.launch.status import run_state
from llmexp.store.lineage import lineage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

EXAMPLES = """  llmexp show last
  llmexp show last/pretrain
  llmexp show 3f9a2c
  llmexp show outputs/store/model/3f9a2c… --json"""

FILES, FIGURES = 40, 12
"""Files of an artifact, and figures of each stage of a run, that are listed."""


def main(args: list[str]) -> int:
    """Print a run, a stage of one, or an artifact."""
    made = verb_parser(
        "show",
        "Configuration, inputs, lineage, figures and files of a run, a stage of one, or an artifact.",
        EXAMPLES,
    )
    made.add_argument(
        "reference",
        nargs="?",
        default="last",
        help="a run (last, part of a name, folder), RUN/STAGE, or an artifact (fingerprint, folder)",
    )
    given = made.parse_args(args)
    places = places_of(given)
    found = subject(given.reference, places)
    data = _run_data(found) if isinstance(found, Pipeline) else _step_data(found, places)
    if given.json:
        print_json(data)
    elif isinstance(found, Pipeline):
        _print_run(data)
    else:
        _print_step(data)
    return 0


def _run_data(run: Pipeline) -> dict[str, Any]:
    """A run as stable JSON."""
    state = run_state(run.run_dir, run.label).as_json()
    for stage in state["stages"]:
        step = run.steps[stage["name"]]
        stage |= {
            "artifact": str(step.artifact.path) if step.artifact else "",
            "kind": step.link.kind if step.link else "",
            "needs": step.link.needs if step.link else {},
            "summary": step.summary(),
        }
    files = sorted(str(path.relative_to(run.run_dir)) for path in run.run_dir.iterdir() if path.is_file())
    return {
        "what": "run",
        **state,
        "overrides": run.record.overrides,
        "tracking": _tracking(run.run_dir),
        "files": files,
    }


def _step_data(step: Step, places: Places) -> dict[str, Any]:
    """A stage or an artifact as stable JSON."""
    known = {artifact.fingerprint: artifact for artifact in places.store.list()}
    artifact, link = step.artifact, step.link
    fingerprint = artifact.fingerprint if artifact else link.fingerprint if link else ""
    made_from = {need: list(lineage(prints, known)) for need, prints in step.inputs().items()}
    return {
        "what": "artifact" if link is None else "stage",
        "label": step.label,
        "stage": step.stage,
        "state": link.status if link else "done",
        "cached": link.cached if link else False,
        "kind": artifact.kind if artifact else link.kind if link else "",
        "fingerprint": fingerprint,
        "path": str(artifact.path) if artifact else "",
        "run_dir": str(step.run_dir or ""),
        "run_id": artifact.manifest.run_id if artifact else "",
        "created": artifact.manifest.created if artifact else "",
        "code_version": artifact.manifest.code_version if artifact else "",
        "bytes": artifact.manifest.bytes if artifact else 0,
        "config": step.config(),
        "inputs": step.inputs(),
        "lineage": made_from,
        "summary": step.summary(),
        "metrics": step.metrics(),
        "files": artifact.manifest.files if artifact else {},
        "error": link.error if link else "",
        "tracking": _tracking(step.run_dir) if step.run_dir else {},
    }


def _tracking(run_dir: Path) -> dict[str, Any]:
    """Where a run is delivered, and its ids there."""
    from llmexp.track.runs import RUN_FILE, read_run

    if not (run_dir / RUN_FILE).is_file():
        return {}
    run = read_run(run_dir)
    return {**run.tracking, "remote": run.remote} if run.tracking else {}


def _print_run(data: dict[str, Any]) -> None:
    run = data["run"]
    shown = console()
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(data["created"]))
    _facts(
        shown,
        data["run"],
        {
            "state": data["state"],
            "begun": began,
            "command": data["command"],
            "folder": data["path"],
            **_ids(data["tracking"]),
        },
    )
    made = table("stage", "type", "state", "artifact", "folder")
    for stage in data["stages"]:
        state = f"{stage['state']}, cached" if stage["cached"] else stage["state"]
        row(
            made,
            [
                stage["name"],
                stage["stage"],
                state,
                f"{stage['kind']}/{stage['fingerprint'][:12]}",
                stage["artifact"] or stage["run_dir"],
            ],
        )
    shown.print()
    shown.print(made)
    for stage in data["stages"]:
        figures = flat(stage["summary"])
        _pairs(shown, f"{stage['name']}: figures", dict(list(figures.items())[:FIGURES]))
        if len(figures) > FIGURES:
            shown.print(
                f"  … and {len(figures) - FIGURES} more: llmexp show {data['run']}/{stage['name']}",
                style="dim",
                markup=False,
            )
    shown.print(
        "\nmore: "
        + " · ".join(f"llmexp {verb}" for verb in (f"show {run}/STAGE", f"logs {run}", f"report {run}")),
        style="dim",
        markup=False,
    )


def _print_step(data: dict[str, Any]) -> None:
    shown = console()
    facts = {
        key: data[key]
        for key in (
            "kind",
            "fingerprint",
            "stage",
            "state",
            "created",
            "run_id",
            "path",
            "run_dir",
            "code_version",
            "error",
        )
    }
    _facts(
        shown,
        data["label"],
        {**facts, "size": size(data["bytes"]) if data["bytes"] else "", **_ids(data["tracking"])},
    )
    _pairs(
        shown, "configuration", {k: v for k, v in flat(data["config"]).items() if not k.endswith("_target_")}
    )
    _pairs(shown, "figures", flat(data["summary"]))
    _pairs(shown, "last metrics", data["metrics"])
    if data["lineage"]:
        shown.print("\nmade from", style="bold")
        shown.print(_tree(data["lineage"]))
    files = {name: size(entry["bytes"]) for name, entry in data["files"].items()}
    _pairs(shown, f"files ({len(files)})", dict(list(files.items())[:FILES]))
    if len(files) > FILES:
        shown.print(f"… and {len(files) - FILES} more (--json lists all)", style="dim")


def _ids(tracking: dict[str, Any]) -> dict[str, str]:
    """Where the run is tracked, in words."""
    if not tracking:
        return {}
    address = tracking.get("address", {})
    ids = ", ".join(str(one.get("run_id")) for one in tracking["remote"].values() if one.get("run_id"))
    return {"tracked at": f"{address.get('uri', '')} {ids}".strip()}


def _facts(shown: Console, title: str, facts: dict[str, Any]) -> None:
    shown.print(title, style="bold", markup=False)
    made = table("", "")
    made.show_header = False
    for key, value in facts.items():
        if value not in ("", None):
            row(made, [f"  {key}", value])
    shown.print(made)


def _pairs(shown: Console, title: str, pairs: dict[str, Any]) -> None:
    if not pairs or set(pairs) == {""}:
        return
    shown.print(f"\n{title}", style="bold", markup=False)
    made = table("", "")
    made.show_header = False
    for key, value in pairs.items():
        text = f"{value:.6g}" if isinstance(value, float) else value_text(value)
        row(made, [f"  {key}", text if len(text) <= 300 else text[:299] + "…"])
    shown.print(made)


def _tree(inputs: dict[str, list[dict[str, Any]]], into: Tree | None = None) -> Tree:
    """Lineage as a tree: need, artifact, stage, run."""
    from rich.text import Text
    from rich.tree import Tree as RichTree

    made = into if into is not None else RichTree("", hide_root=True)
    for need, artifacts in inputs.items():
        for one in artifacts:
            what = (
                f"{one['kind']}/{one['fingerprint'][:12]}"
                if one["kind"]
                else f"{one['fingerprint'][:12]} (not in this store)"
            )
            about = f"  by {one['stage']}, run {one['run_id']}" if one["stage"] else ""
            _tree(one["inputs"], made.add(Text(f"{need}: {what}{about}")))
    return made
