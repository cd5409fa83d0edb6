"""``llmexp store list|show|verify|prune``: artifacts, whether they are whole, and which can go."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from llmexp.cli.keep import fingerprints_of_runs
from llmexp.cli.places import Places, add_places, places_of, run_name, the_run
from llmexp.cli.terminal import console, print_json, row, size, table
from llmexp.config.mistakes import UserError
from llmexp.stage.runs import PipelineRecord, pipeline_runs
from llmexp.store.artifact import Artifact
from llmexp.store.errors import Damaged

EXAMPLES = """  llmexp store list
  llmexp store list model --json
  llmexp store show 3f9a2c
  llmexp store verify
  llmexp store verify 3f9a2c --rebuild
  llmexp store prune --dry-run
  llmexp store prune --yes"""


def main(args: list[str]) -> int:
    """Run one of the four."""
    given = _parser().parse_args(args)
    if given.what == "show":
        from llmexp.cli import show

        stores = [part for root in given.store or () for part in ("--store", root)]
        return show.main(
            [given.reference, "--outputs", given.outputs, *stores, *(["--json"] if given.json else [])]
        )
    action = {"list": _list, "verify": _verify, "prune": _prune}[given.what]
    return action(given, places_of(given))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="llmexp store",
        description="Artifacts: what is there, whether it is whole, what can go.",
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = made.add_subparsers(dest="what", required=True, metavar="list|show|verify|prune")
    listed = verbs.add_parser("list", help="all artifacts, or those of a kind")
    listed.add_argument("kind", nargs="?", help="corpus, tokenizer, shards, model, report, export")
    shown = verbs.add_parser("show", help="everything about one artifact")
    shown.add_argument("reference", help="fingerprint, start of one, or folder")
    verified = verbs.add_parser("verify", help="read every file again and compare it with the manifest")
    verified.add_argument(
        "reference", nargs="?", help="fingerprint, start of one, or folder; without it, all artifacts"
    )
    verified.add_argument(
        "--rebuild",
        action="store_true",
        help="move what is damaged aside, so that the next run builds it again",
    )
    pruned = verbs.add_parser(
        "prune", help="remove what no run depends on; a run is kept by keeping its folder"
    )
    pruned.add_argument(
        "--keep",
        metavar="RUN",
        action="append",
        default=[],
        help="also keep what this run elsewhere depends on (its folder)",
    )
    pruned.add_argument("--dry-run", action="store_true", help="only say what would go")
    pruned.add_argument("--yes", "-y", action="store_true", help="do not ask")
    for one in (listed, shown, verified, pruned):
        add_places(one)
        one.add_argument("--json", action="store_true", help="as JSON, with stable keys")
    return made


def _list(given: argparse.Namespace, places: Places) -> int:
    kinds = places.store.kinds()
    if given.kind is not None and given.kind not in kinds:
        there = ", ".join(kinds) or "none, the store is empty"
        raise UserError(f"there is no artifact of kind '{given.kind}'. Kinds here: {there}")
    found = [a for a in places.store.list() if given.kind in (None, a.kind)]
    found.sort(key=lambda a: (a.kind, a.manifest.created))
    broken = [damage for damage in places.store.broken() if given.kind in (None, damage.kind)]
    if given.json:
        print_json({"artifacts": [_about(a) for a in found], "damaged": [_damage(d) for d in broken]})
        return 0
    made = table("kind", "fingerprint", "stage", "size>", "created", "run")
    for a in found:
        row(
            made,
            [
                a.kind,
                a.fingerprint[:12],
                a.manifest.stage,
                size(a.manifest.bytes),
                a.manifest.created[:16].replace("T", " "),
                a.manifest.run_id,
            ],
        )
    for damage in broken:
        row(
            made,
            [damage.kind, damage.fingerprint[:12], "", "", "", f"damaged: {damage.file} {damage.problem}"],
            style="red",
        )
    shown = console()
    shown.print(made)
    shown.print(
        f"{len(found)} artifacts, {size(sum(a.manifest.bytes for a in found))}, in {places.store.root}",
        style="dim",
        markup=False,
    )
    return 0


def _about(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "kind": artifact.kind,
        "fingerprint": artifact.fingerprint,
        "stage": manifest.stage,
        "path": str(artifact.path),
        "bytes": manifest.bytes,
        "created": manifest.created,
        "run_id": manifest.run_id,
        "inputs": manifest.inputs,
        "summary": manifest.summary,
    }


def _damage(damage: Damaged) -> dict[str, Any]:
    return {
        "kind": damage.kind,
        "fingerprint": damage.fingerprint,
        "path": str(damage.path),
        "file": damage.file,
        "problem": damage.problem,
    }


def _verify(given: argparse.Namespace, places: Places) -> int:
    """Exit code 1 when something is damaged and stays so."""
    found: dict[Path, list[Damaged]] = {}
    chosen = _chosen(given.reference, places)
    for one in chosen:
        damages = [one] if isinstance(one, Damaged) else places.store.verify(one)
        if damages:
            found[one.path] = damages
    rebuilt = {path: _rebuild(damages[0], places) for path, damages in found.items()} if given.rebuild else {}
    if given.json:
        print_json(
            {
                "verified": len(chosen),
                "damaged": [_damage(d) for damages in found.values() for d in damages],
                "discarded": [
                    {"path": str(path), "aside": aside, "command": command}
                    for path, (aside, command) in rebuilt.items()
                ],
            }
        )
        return 1 if found and not given.rebuild else 0
    for path, damages in found.items():
        sys.stdout.write(f"{damages[0].kind}/{damages[0].fingerprint} is damaged:\n")
        sys.stdout.writelines(f"  {damage.file} {damage.problem}\n" for damage in damages)
        if path in rebuilt:
            aside, command = rebuilt[path]
            sys.stdout.write(f"  set aside ({aside}); build it again with:\n    {command}\n")
        else:
            sys.stdout.write(f"  fix: llmexp store verify {damages[0].fingerprint} --rebuild\n")
    sys.stdout.write(f"{len(chosen)} verified, {len(found)} damaged\n")
    return 1 if found and not given.rebuild else 0


def _chosen(reference: str | None, places: Places) -> list[Artifact | Damaged]:
    if reference is None:
        return list(places.store.scan())
    try:
        return [places.store.resolve(reference)]
    except Damaged as damage:
        return [damage]


def _rebuild(damage: Damaged, places: Places) -> tuple[str, str]:
    """(where the artifact went, the command that builds it again)."""
    return str(places.store.discard(damage)), _command(damage.fingerprint, places)


def _command(fingerprint: str, places: Places) -> str:
    """The newest command whose pipeline has this artifact."""
    for run_dir in reversed(pipeline_runs(places.runs)):
        record = PipelineRecord.read(run_dir)
        if any(link.fingerprint == fingerprint for link in record.stages.values()) and record.command:
            return record.command
    return "any llmexp command that needs it (no run in " + shlex.quote(str(places.runs)) + " names it)"


def _prune(given: argparse.Namespace, places: Places) -> int:
    from llmexp.store.prune import prune

    runs = [*pipeline_runs(places.runs), *(the_run(reference, places) for reference in given.keep)]
    keep = fingerprints_of_runs(runs, places)
    plan = prune(places.store, keep, dry_run=True)
    if not given.json:
        _print_plan(plan.removed, plan.bytes, [run_name(run, places) for run in runs], places)
    if given.dry_run or not plan.removed:
        return _told(given, plan.removed, plan.bytes, removed=False)
    if not given.yes and not _agreed(len(plan.removed)):
        return 0
    # Asking takes time, in which a run may have begun or published.
    done = prune(places.store, fingerprints_of_runs([*pipeline_runs(places.runs), *runs], places))
    return _told(given, done.removed, done.bytes, removed=True)


def _print_plan(removals: list[Any], total: int, runs: list[str], places: Places) -> None:
    shown = console()
    if not removals:
        shown.print(
            f"nothing to remove from {places.store.root}: all of it is needed by {len(runs)} runs",
            markup=False,
        )
        return
    made = table("what", "folder", "size>")
    for removal in removals:
        row(made, [removal.what, removal.path.relative_to(places.store.root), size(removal.bytes)])
    shown.print(made)
    shown.print(
        f"{len(removals)} can go, {size(total)}; what {len(runs)} runs in {places.outputs} depend on stays",
        markup=False,
    )


def _agreed(count: int) -> bool:
    """Ask on a terminal; refuse where nobody can answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "prune removes for good, and there is no terminal to ask on: look with --dry-run, then add --yes"
        )
    return input(f"remove these {count}? [y/N] ").strip().lower() in ("y", "yes")


def _told(given: argparse.Namespace, removals: list[Any], total: int, *, removed: bool) -> int:
    if given.json:
        print_json(
            {
                "removed": removed,
                "bytes": total,
                "items": [{"what": r.what, "path": str(r.path), "bytes": r.bytes} for r in removals],
            }
        )
    elif removed:
        sys.stdout.write(f"removed {len(removals)}, {size(total)}\n")
    return 0
