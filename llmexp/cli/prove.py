"""``llmexp prove``: resume, packing and export, on one's own composition and machine."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.cli.compose import compose, parser
from llmexp.cli.terminal import console, print_json, row, table
from llmexp.config.mistakes import UserError, choices, nearest
from llmexp.track.progress import Interrupted, Progress

if TYPE_CHECKING:
    from llmexp.prove.result import Comparison, Proof
    from llmexp.stage.graph import Composition

EXAMPLES = """  llmexp prove resume model=tiny
  llmexp prove packing stage=sft
  llmexp prove export experiment=quickstart --stage pretrain
  llmexp prove resume experiment=quickstart --stage grpo --steps 20 --json"""

PROOFS = {
    "resume": "a run that was killed and went on is the uninterrupted one, bit for bit",
    "packing": "a document in a packed row gives the logits and the loss that it gives alone",
    "export": "the exported folder gives our logits and our greedy text in transformers",
}

LEAST_STEPS = 4
"""Fewer leave no room for a checkpoint, a kill and something after it."""


def main(args: list[str]) -> int:
    """Prove one thing; exit code 1 when a number differs."""
    made = _arguments()
    given = made.parse_intermixed_args(args)
    what = _what(given)
    if given.steps < LEAST_STEPS:
        raise UserError(f"--steps {given.steps} is out of range: give a value of at least {LEAST_STEPS}")
    if given.global_batch < 1:
        raise UserError(f"--global-batch {given.global_batch} is out of range: give a value of at least 1")
    composition, _ = compose(given.overrides[1:], given.config_dir)
    folder = Path(tempfile.mkdtemp(prefix="llmexp-prove-"))
    keep = True
    try:
        proof = _prove(what, composition, given, folder)
        keep = not proof.holds
    except UserError:
        keep = False
        raise
    except KeyboardInterrupt:
        keep = False
        raise Interrupted("a proof keeps nothing; the same command begins anew") from None
    finally:
        if keep:
            sys.stderr.write(f"what was written is kept in {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        print_json(proof.as_json())
    else:
        _print(proof)
    return 0 if proof.holds else 1


def _arguments() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<8} {line}" for name, line in PROOFS.items())
    about = (
        "Prove on this machine, with a training stage of a composition (the last one that trains) at a size "
        "of minutes.\nWrites into a temporary folder; what the stores hold is used.\n\n" + lines
    )
    made = parser("prove", about, EXAMPLES)
    made.usage = f"llmexp prove {{{','.join(PROOFS)}}} [OVERRIDES ...] [FLAGS]"
    made.add_argument("--steps", type=int, default=12, metavar="N", help="optimizer steps (default: 12)")
    made.add_argument(
        "--global-batch", type=int, default=8, metavar="N", help="sequences a step at most (default: 8)"
    )
    made.add_argument("--stage", metavar="NAME", help="which training stage of the composition")
    made.add_argument("--json", action="store_true", help="as JSON, with stable keys")
    made.add_argument("--quiet", "-q", action="store_true", help="no progress")
    return made


def _what(given: argparse.Namespace) -> str:
    """The proof that is asked for: the first word."""
    word = given.overrides[0] if given.overrides else ""
    if word not in PROOFS:
        said = f"'{word}' is no proof." if word else "say what to prove."
        there = f"There are {choices(PROOFS)}: llmexp prove resume OVERRIDES"
        raise UserError(" ".join(filter(None, (said, nearest(word, PROOFS), there))))
    return word


def _prove(what: str, composition: Composition, given: argparse.Namespace, folder: Path) -> Proof:
    from llmexp.prove.cut import Size, prepare, training_stage

    stage = training_stage(composition, given.stage)
    if what == "export":
        from llmexp.prove.export import require_transformers

        require_transformers()
    with Progress(quiet=given.quiet) as progress:
        size = Size(given.steps, given.global_batch)
        progress.line(f"prove {what} with stage '{stage.name}' ({stage.kind})")
        ready = prepare(composition, stage.name, size, folder, progress)
        if what == "packing":
            from llmexp.prove.packing import prove_packing

            return prove_packing(ready, progress)
        if what == "export":
            from llmexp.prove.export import prove_export

            return prove_export(ready, progress, quiet=given.quiet)
        from llmexp.prove.resume import prove_resume

        return prove_resume(ready, progress, quiet=given.quiet)


def _print(proof: Proof) -> None:
    shown = console()
    for note in proof.notes:
        shown.print(note, style="dim", markup=False)
    made = table("compared", "numbers>", "largest difference>", "allowed>", "verdict")
    for one in proof.comparisons:
        row(made, _cells(one), style="" if one.holds else "red")
    shown.print(made)
    first = proof.first or ("none" if proof.holds else "nothing was compared")
    shown.print(f"first number that differs: {first}", style="green" if proof.holds else "red", markup=False)


def _cells(one: Comparison) -> list[str]:
    allowed = f"{one.tolerance:.1e}" if one.tolerance else "0 (every bit)"
    verdict = "equal" if one.holds else "DIFFERENT" if one.numbers else "nothing compared"
    return [one.what, f"{one.numbers:,}", f"{one.largest:.3g}", allowed, verdict]
