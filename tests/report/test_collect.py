"""A report's data from real artifacts and real run folders."""

import math
import shutil
from pathlib import Path

import pytest

from llmexp.evaluate.result import write
from llmexp.report.collect import StageLink, collect
from llmexp.report.page import render
from llmexp.store.errors import Damaged
from llmexp.store.store import Store
from llmexp.track import tracker as tracking
from llmexp.track.config import NoTrackingSpec
from llmexp.track.masking import mask_of

EVALUATION = {"table": {"pretrain": {"loss": 3.25, "perplexity": math.inf}}, "baselines": {}, "samples": []}


def publish(store: Store, kind: str, fingerprint: str, stage: str, fill, **about) -> Path:
    with store.build(kind, fingerprint, stage=stage, config={"seed": 7}, **about) as build:
        fill(build.out)
        build.publish({"steps": 3})
    return build.artifact.path


def tracked(run_dir: Path, stage: str, curve: dict[int, dict[str, float]], outputs: Path) -> Path:
    with tracking.start(
        NoTrackingSpec(), run_dir=run_dir, name=stage, stage=stage, outputs=outputs
    ) as tracker:
        for step, values in curve.items():
            tracker.metrics(values, step)
    return run_dir


@pytest.fixture
def links(tmp_path: Path) -> list[StageLink]:
    store = Store([tmp_path / "store"])
    curve = {step: {"train/loss": 5.0 - step, "train/lr": 0.1, "system/cpu": 3.0} for step in range(3)}
    model = publish(store, "model", "a" * 32, "pretrain", lambda out: (out / "w").write_text("x"))
    report = publish(
        store,
        "report",
        "b" * 32,
        "evaluate",
        lambda out: write(EVALUATION, out),
        inputs={"models": ["a" * 32]},
    )
    return [
        StageLink(
            name="pretrain",
            stage="pretrain",
            artifact=model,
            run_dir=tracked(tmp_path / "run/pretrain", "pretrain", curve, tmp_path),
        ),
        StageLink(name="measure", stage="evaluate", artifact=report, cached=True),
        StageLink(name="export", stage="export", status="failed"),
    ]


def test_each_stage_has_its_manifest_and_its_curves(links):
    pretrain, measure, _ = collect(title="x", stages=links).stages
    assert pretrain.curves == {"train/loss": [[0.0, 5.0], [1.0, 4.0], [2.0, 3.0]]}
    assert (pretrain.kind, pretrain.summary, pretrain.config) == ("model", {"steps": 3}, {"seed": 7})
    assert pretrain.status == "done"
    assert pretrain.seconds is not None
    assert measure.inputs == {"models": ["a" * 32]}
    assert measure.cached


def test_the_evaluation_is_read_from_its_artifact(links):
    data = collect(title="x", stages=links)
    assert float(data.evaluation["table"]["pretrain"]["perplexity"]) == math.inf


def test_a_stage_that_failed_has_a_row_without_an_artifact(links):
    row = collect(title="x", stages=links).stages[2]
    assert (row.status, row.fingerprint) == ("failed", "")


def test_an_artifact_that_was_pruned_leaves_its_row(links):
    shutil.rmtree(links[0].artifact)
    row = collect(title="x", stages=links).stages[0]
    assert row.fingerprint == ""
    assert row.curves


def test_a_damaged_evaluation_is_not_shown(links):
    (links[1].artifact / "evaluation.json").write_text("{}")
    with pytest.raises(Damaged):
        collect(title="x", stages=links)


def test_the_pipelines_own_run_gives_status_and_time(links, tmp_path):
    run_dir = tracked(tmp_path / "2026-11-30/10-00-00", "pipeline", {}, tmp_path)
    data = collect(title="x", stages=links, run_dir=run_dir)
    assert data.run_id == "2026-11-30/10-00-00"
    assert data.status == "done"
    assert data.seconds is not None


def test_steps_replayed_after_a_rollback_are_no_curve_of_their_own(tmp_path):
    run_dir = tmp_path / "run"
    with tracking.start(NoTrackingSpec(), run_dir=run_dir, name="x", stage="x", outputs=tmp_path) as tracker:
        tracker.metrics({"train/loss": 1.0}, 0)
        tracker.metrics({"train/loss": 2.0}, 1)
        tracker.rollback(0)
        tracker.metrics({"train/loss": 3.0}, 1)
    (row,) = collect(title="x", stages=[StageLink(name="x", stage="x", run_dir=run_dir)]).stages
    assert row.curves == {"train/loss": [[0.0, 1.0], [1.0, 2.0]]}


def test_secrets_are_masked_everywhere(links):
    data = collect(
        title="x",
        command="llmexp tracking.uri=http://user:hunter2secret@server",
        stages=links,
        environment={"token": "hunter2secret"},
        notes=["cannot reach hunter2secret"],
        mask=mask_of(["hunter2secret"]),
    )
    assert "hunter2secret" not in render(data)


def test_a_tracked_environment_is_told_in_a_few_lines():
    found = {
        "python": "3.11.9",
        "cpus": 2,
        "host": "node1",
        "devices": [],
        "packages": {"torch": "2.13.0", "x": "1"},
    }
    environment = collect(title="x", stages=[], environment=found).environment
    assert environment["Machine"] == "node1, 2 CPU cores, no GPU"
    assert environment["Packages"] == "torch 2.13.0"
