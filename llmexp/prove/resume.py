"""A run that was killed and went on is the run that nobody interrupted, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmexp.prove.child import run
from llmexp.prove.cut import Ready
from llmexp.prove.result import Comparison, Proof, compare_tensors
from llmexp.track.progress import Progress
from llmexp.track.runs import read_events, read_metrics

OF_THE_CLOCK = ("perf/", "system/")
"""Metrics that no two runs share."""


def prove_resume(ready: Ready, progress: Progress, *, quiet: bool = False) -> Proof:
    """Train without interruption; again, killed by SIGKILL half way; go on; compare.

    Raises:
        RankFailed: a training ended by itself before its time.
        RuntimeError: the killed one did not go on from a checkpoint, so that nothing was proved.
    """
    steps = ready.spec.trainer.max_steps or 0
    whole, killed = ready.again("uninterrupted"), ready.again("killed")
    progress.line(f"training {steps} steps without interruption")
    expected = run(whole, ready.world, quiet=quiet)
    kill_after = steps // 2
    progress.line(f"training again; SIGKILL in step {kill_after + 1}")
    if run(killed, ready.world, kill_after=kill_after, quiet=quiet) is not None:
        raise RuntimeError("the training ended before it could be killed: nothing is proved")
    progress.line("going on with it")
    found = run(killed, ready.world, quiet=quiet)
    assert expected is not None
    assert found is not None
    resumed = [event["step"] for event in read_events(killed.run_dir) if event["event"] == "resume"]
    if not resumed:
        raise RuntimeError("the killed training began anew instead of going on: nothing is proved")
    notes = [
        f"{steps} steps of {ready.spec.trainer.global_batch} sequences, {ready.world} process(es)",
        f"killed by SIGKILL in step {kill_after + 1}, went on from the checkpoint of step {resumed[-1]}",
    ]
    if not any(read_metrics(whole.run_dir)["train/grad_norm"].values):
        notes.append("every gradient was 0, so that nothing was learned: this shows little of the optimizer")
    comparisons = [
        *compare_runs(whole.run_dir, killed.run_dir),
        compare_weights(whole.out, killed.out),
        compare_hashes(expected, found),
    ]
    return Proof("resume", ready.job.name, comparisons, notes)


def compare_runs(expected: Path, found: Path) -> list[Comparison]:
    """Every metric of every step of two runs' folders, those of the clock left out; the losses first."""
    one, other = read_metrics(expected), read_metrics(found)
    keys = {key for key in one.keys() | other.keys() if not key.startswith(OF_THE_CLOCK)}
    return [_compare_series(key, one.get(key), other.get(key)) for key in sorted(keys, key=_losses_first)]


def _losses_first(key: str) -> tuple[bool, str]:
    return not key.endswith("/loss"), key


def _compare_series(key: str, expected: Any, found: Any) -> Comparison:
    comparison = Comparison(key)
    one, other = (dict(zip(s.steps, s.values, strict=True)) if s else {} for s in (expected, found))
    for step in sorted(one.keys() | other.keys()):
        comparison.add(f"step {step}", one.get(step), other.get(step))
    return comparison


def compare_weights(expected: Path, found: Path) -> Comparison:
    """Every weight of two models' folders."""
    from safetensors import safe_open

    comparison = Comparison("final weights")
    with (
        safe_open(expected / "model.safetensors", "pt") as one,
        safe_open(found / "model.safetensors", "pt") as other,
    ):
        names = set(one.keys()), set(other.keys())
        for name in sorted(names[0] | names[1]):
            if name not in names[0] & names[1]:
                comparison.differ(f"{name}: is in one model only", float("nan"))
                continue
            compare_tensors("element", one.get_tensor(name), other.get_tensor(name), 0.0, name, comparison)
    return comparison


def compare_hashes(expected: dict[str, Any], found: dict[str, Any]) -> Comparison:
    """The hash over the bytes of all final weights, as each training told it."""
    comparison = Comparison("hash of the final weights", numbers=1)
    if expected["weights_hash"] != found["weights_hash"]:
        comparison.differ(f"{expected['weights_hash']} and {found['weights_hash']}", float("nan"))
    return comparison
