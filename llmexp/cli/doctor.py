"""``llmexp doctor``: what this machine has, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from llmexp.cli import machine
from llmexp.cli.compose import parser, session
from llmexp.cli.machine import ERROR, NOTE, OK, WARNING, Finding
from llmexp.cli.terminal import console, print_json, row, table
from llmexp.config.mistakes import CompositionError

EXAMPLES = """  llmexp doctor
  llmexp doctor tracking.uri=http://mlflow.example.org:5000
  llmexp doctor paths.outputs=/scratch/me --json"""

MARKS = {OK: ("✓", "green"), NOTE: ("·", "dim"), WARNING: ("!", "yellow"), ERROR: ("✗", "red")}


def main(args: list[str]) -> int:
    """Look at everything; exit code 1 when something essential is wrong."""
    made = parser(
        "doctor",
        "What this machine has, what is wrong with it, and the fix. Takes seconds, changes nothing.",
        EXAMPLES,
    )
    made.add_argument("--json", action="store_true", help="as JSON, with stable keys")
    given = made.parse_intermixed_args(args)
    findings = list(examine(given.overrides, given.config_dir))
    wrong = any(finding.level == ERROR for finding in findings)
    if given.json:
        print_json({"ok": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    return 1 if wrong else 0


def examine(overrides: list[str], config_dirs: list[str]) -> Iterator[Finding]:
    """All findings, for the folders and the tracking of a composition.

    Raises:
        CompositionError: the overrides themselves are wrong.
    """
    installed = [*machine.python_and_llmexp(), *machine.libraries(), *machine.plugins()]
    yield from installed
    try:
        cfg = session(config_dirs, complete=False).compose(overrides)
    except CompositionError as error:
        if all(finding.level != ERROR for finding in installed):
            raise
        yield Finding("configuration", ERROR, f"cannot be composed: {error}", "put right what is above first")
        return
    yield from machine.devices()
    yield from machine.cores_and_memory()
    yield from machine.compiler()
    outputs = Path(str(cfg.paths.outputs))
    yield from machine.disks(outputs, [Path(str(root)) for root in cfg.paths.store])
    yield from machine.tracking(_tracking_uri(cfg.tracking, outputs))
    yield from machine.slurm()


def _tracking_uri(node: object, outputs: Path) -> str:
    """The address that runs would be delivered to; empty for none."""
    from omegaconf import DictConfig

    from llmexp.config.validate import Materialise
    from llmexp.track.config import MlflowSpec

    spec = Materialise({}).spec(node) if isinstance(node, DictConfig) else None
    return spec.address(outputs)["uri"] if isinstance(spec, MlflowSpec) else ""


def _print(findings: list[Finding]) -> None:
    made = table("", "what", "found", "what to do")
    made.show_header = False
    for finding in findings:
        mark, style = MARKS[finding.level]
        row(
            made, [mark, finding.what, finding.found, finding.fix], style=style if finding.level != OK else ""
        )
    shown = console()
    shown.print(made)
    errors, warnings = (sum(f.level == level for f in findings) for level in (ERROR, WARNING))
    words = (
        "nothing is wrong"
        if not errors + warnings
        else f"{errors} essential things are wrong, {warnings} warnings"
    )
    shown.print(f"\n{words}", style="bold")
