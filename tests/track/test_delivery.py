"""Delivery to a real MLflow server, alive, dead, killed and restarted."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from slow_line import SlowLine

from llmexp.track.config import MlflowSpec
from llmexp.track.delivery import Destination, Synced, destination, sync
from llmexp.track.progress import Interrupted
from llmexp.track.runs import process_started, read_metrics, read_run
from llmexp.track.tracker import RunTracker, start


def begin(spec: MlflowSpec, run_dir: Path, parent=None, **more) -> RunTracker:
    tracker = start(
        spec,
        run_dir=run_dir,
        name=run_dir.name,
        stage="pretrain",
        outputs=run_dir.parent,
        parent=parent,
        **more,
    )
    assert isinstance(tracker, RunTracker)
    return tracker


def log_losses(tracker: RunTracker, steps: range) -> None:
    for step in steps:
        tracker.metrics({"train/loss": step / 7}, step)


def address(spec: MlflowSpec, outputs: Path) -> Destination:
    where = destination(spec, outputs)
    assert where is not None
    return where


def mlflow_id(run_dir: Path) -> str:
    (remote,) = read_run(run_dir).remote.values()
    return remote["run_id"]


def history(client, run_dir: Path, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(mlflow_id(run_dir), key)]


def test_a_pipeline_becomes_a_parent_run_and_its_stages_children(client, mlflow_spec, tmp_path):
    with begin(mlflow_spec, tmp_path / "pipeline") as pipeline:
        for name in ("collect", "pretrain"):
            with begin(mlflow_spec, tmp_path / name, parent=pipeline) as stage:
                stage.metrics({"train/loss": 2.5}, 1)
                (tmp_path / "one.md").write_text("hello")
                stage.file(tmp_path / "one.md", "samples/one.md")
                assert not stage.delivers
    parent = client.get_run(mlflow_id(tmp_path / "pipeline"))
    for name in ("collect", "pretrain"):
        run = client.get_run(mlflow_id(tmp_path / name))
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.info.status == "FINISHED"
        assert run.info.run_name == name
        assert run.data.metrics["train/loss"] == 2.5
        assert {f.path for f in client.list_artifacts(run.info.run_id)} >= {
            "environment.json",
            "events.jsonl",
            "samples",
        }


def test_a_resumed_run_continues_its_mlflow_run_without_duplicated_steps(client, mlflow_spec, tmp_path):
    with begin(mlflow_spec, tmp_path / "run") as tracker:
        tracker.params({"trainer": {"max_steps": 4}, "model": {"d_model": 64}})
        for step in range(5):
            tracker.metrics({"train/loss": float(step)}, step)
    first = mlflow_id(tmp_path / "run")
    with begin(mlflow_spec, tmp_path / "run") as tracker:
        tracker.params({"trainer": {"max_steps": 8}, "model": {"d_model": 64}})
        for step in range(3, 8):
            tracker.metrics({"train/loss": -1.0 if step < 5 else float(step)}, step)
    run = client.get_run(mlflow_id(tmp_path / "run"))
    assert run.info.run_id == first
    assert history(client, tmp_path / "run", "train/loss") == [(i, float(i)) for i in range(8)]
    assert run.data.params["trainer.max_steps"] == "4"
    assert run.data.tags["param.trainer.max_steps:resume1"] == "8"
    assert not [tag for tag in run.data.tags if tag.startswith("param.model")]


TEXTS = {f"note{n}": "x" * n for n in (249, 250, 251, 500, 501, 6000, 6001)}
TEXTS |= {"note7000a": "x" * 7000 + "a", "note7000b": "x" * 7000 + "b"}
ODD_KEYS = {"k" * 300 + "a": 1, "k" * 300 + "b": 2, "a": {"b c": 1, "b?c": 2, "b!c": 3}}


class Shards:
    """An artifact, as lineage needs it."""

    kind, fingerprint, path = "shards", "f" * 32, Path("store/shards") / ("f" * 32)


@pytest.fixture(scope="module")
def rich_run(mlflow_spec, tmp_path_factory) -> Path:
    """A run with long and odd parameters, odd values, lineage and files."""
    run_dir = tmp_path_factory.mktemp("rich") / "run"
    with begin(mlflow_spec, run_dir) as tracker:
        tracker.params({"data": TEXTS, **ODD_KEYS})
        tracker.metrics({"train/loss": float("nan"), "bad": float("inf")}, 1)
        tracker.lineage({"shards": Shards(), "models": [Shards(), Shards()]}, Shards())
    return run_dir


def test_long_parameters_are_cut_but_stay_different(client, rich_run):
    params = client.get_run(mlflow_id(rich_run)).data.params
    for name, text in TEXTS.items():
        sent = params[f"data.{name}"]
        assert sent == text if len(text) <= 6000 else (len(sent) == 6000 and "sha256:" in sent)
    assert params["data.note7000a"] != params["data.note7000b"]


def test_odd_and_long_keys_stay_different(client, rich_run):
    assert len(client.get_run(mlflow_id(rich_run)).data.params) == len(TEXTS) + 5


def test_the_whole_configuration_is_an_artifact(client, rich_run, tmp_path):
    whole = Path(client.download_artifacts(mlflow_id(rich_run), "config.yaml", str(tmp_path)))
    assert yaml.safe_load(whole.read_text())["data"] == TEXTS


def test_non_finite_values_arrive(client, rich_run):
    (loss,) = [value for _, value in history(client, rich_run, "train/loss")]
    (bad,) = [value for _, value in history(client, rich_run, "bad")]
    assert math.isnan(loss)
    assert bad > 1e308


def test_lineage_is_told_as_tags_and_as_a_file(client, rich_run):
    run = client.get_run(mlflow_id(rich_run))
    assert run.data.tags["input.shards"] == "shards/" + "f" * 32
    assert run.data.tags["output"] == "shards/" + "f" * 32
    assert "lineage.json" in {f.path for f in client.list_artifacts(run.info.run_id)}


def test_code_version_and_environment_are_tags(client, rich_run):
    tags = client.get_run(mlflow_id(rich_run)).data.tags
    assert len(tags["git.commit"]) == 40
    assert tags["git.dirty"] in ("true", "false")
    assert {"env.python", "env.host", "env.command", "package.torch"} <= tags.keys()


def test_a_run_that_fails_or_is_interrupted_says_so(client, mlflow_spec, tmp_path):
    with begin(mlflow_spec, tmp_path / "pipeline") as pipeline:
        for error, status in ((RuntimeError("boom"), "FAILED"), (Interrupted("later"), "KILLED")):
            with pytest.raises(type(error)), begin(mlflow_spec, tmp_path / status, parent=pipeline):
                raise error
    for status in ("FAILED", "KILLED"):
        assert client.get_run(mlflow_id(tmp_path / status)).info.status == status
        assert read_run(tmp_path / status).status == status


@dataclass
class Outage:
    """Two runs over one death of the server: ``early`` began before it, ``late`` while it was dead."""

    early: Path
    late: Path
    spec: MlflowSpec
    late_seconds: float
    late_close_seconds: float
    late_message: str
    early_message: str
    late_synced: Synced


@pytest.fixture(scope="module")
def outage(mlflow_server, tmp_path_factory) -> Outage:
    folder = tmp_path_factory.mktemp("outage")
    spec = MlflowSpec(
        uri=mlflow_server.uri, experiment="tests", system_every=0.0, close_wait=60.0, linger=60.0
    )
    early = begin(spec, folder / "early")
    log_losses(early, range(500))
    time.sleep(3.0)
    mlflow_server.kill()
    log_losses(early, range(500, 1000))
    begun = time.monotonic()
    late = begin(replace(spec, close_wait=1.0, linger=1.0), folder / "late")
    log_losses(late, range(1000))
    logged = time.monotonic()
    late_message = late.close()
    closed = time.monotonic()
    mlflow_server.start()
    early_message = early.close()
    (synced,) = sync([folder / "late"], address(spec, folder), patience=30.0)
    return Outage(
        folder / "early",
        folder / "late",
        spec,
        logged - begun,
        closed - logged,
        late_message,
        early_message,
        synced,
    )


def test_a_dead_server_holds_up_neither_logging_nor_the_end(outage):
    assert outage.late_seconds < 3.0
    assert outage.late_close_seconds < 3.0
    assert "llmexp sync" in outage.late_message


def test_a_slow_server_holds_up_no_logging_and_gets_everything_once(client, mlflow_server, tmp_path):
    line = SlowLine(mlflow_server.port, delay=1.0)
    spec = MlflowSpec(uri=line.uri, experiment="tests", system_every=0.0, close_wait=60.0, linger=60.0)
    tracker = begin(spec, tmp_path / "slow")
    begun = time.monotonic()
    log_losses(tracker, range(1000))
    logged = time.monotonic() - begun
    assert tracker.close() == ""
    line.close()
    assert logged < 3.0
    assert time.monotonic() - begun > 3.0  # or nothing was slow
    assert history(client, tmp_path / "slow", "train/loss") == [(i, i / 7) for i in range(1000)]


def test_what_a_dead_server_missed_is_synced_and_nothing_twice(client, outage):
    assert (outage.late_synced.remaining, outage.late_synced.problem) == (0, "")
    where = address(outage.spec, outage.late.parent)
    assert sync([outage.late], where)[0].delivered == 0
    (outage.late / "delivery" / where.name / "cursor.json").unlink()
    assert sync([outage.late], where)[0].delivered > 1000
    assert history(client, outage.late, "train/loss") == [(i, i / 7) for i in range(1000)]
    assert client.get_run(mlflow_id(outage.late)).info.status == "FINISHED"


def test_a_server_that_is_killed_and_restarted_gets_everything_once(client, outage):
    assert outage.early_message == ""
    assert history(client, outage.early, "train/loss") == [(i, i / 7) for i in range(1000)]


def test_the_journals_times_are_the_servers_times(client, outage):
    sent = [m.timestamp for m in client.get_metric_history(mlflow_id(outage.late), "train/loss")]
    assert sent == [round(1000 * t) for t in read_metrics(outage.late)["train/loss"].times]


WRITER = """
    import os, sys, time
    from pathlib import Path
    from llmexp.track.config import MlflowSpec
    from llmexp.track.tracker import start
    run_dir, uri, experiment, end, linger, parent = sys.argv[1:]
    run_dir, parent = Path(run_dir), Path(parent) if parent else None
    spec = MlflowSpec(
        uri=uri or None, experiment=experiment, system_every=0.0, close_wait=60.0, linger=float(linger)
    )
    outputs = run_dir.parent
    tracker = start(spec, run_dir=run_dir, name=run_dir.name, stage="sft", outputs=outputs, parent=parent)
    for step in range(200):
        tracker.metrics({"train/loss": float(step)}, step)
    if end == "die":
        os.kill(os.getpid(), 9)
    print(tracker.close())
"""


def writer(
    run_dir: Path, uri: str, experiment: str, end: str, *, linger: float = 20.0, parent: Path | None = None
) -> subprocess.Popen[str]:
    """A process that logs 200 losses and then closes its run, or dies by SIGKILL."""
    arguments = [str(run_dir), uri, experiment, end, str(linger), str(parent or "")]
    command = [sys.executable, "-c", textwrap.dedent(WRITER), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_stage_in_another_process_is_a_child_of_the_same_parent_run(client, mlflow_spec, tmp_path):
    with begin(mlflow_spec, tmp_path / "pipeline"):
        stage = writer(tmp_path / "sft", mlflow_spec.uri, "tests", "close", parent=tmp_path / "pipeline")
        assert stage.communicate(timeout=60)[0].strip() == ""
    parent = mlflow_id(tmp_path / "pipeline")
    assert client.get_run(mlflow_id(tmp_path / "sft")).data.tags["mlflow.parentRunId"] == parent
    experiment = client.get_experiment_by_name("tests").experiment_id
    own = f"tags.`llmexp.run` = '{read_run(tmp_path / 'pipeline').id}'"
    assert len(client.search_runs([experiment], own)) == 1


def test_a_deleted_experiment_is_told_with_what_to_do(client, mlflow_spec, tmp_path):
    client.delete_experiment(client.create_experiment("gone"))
    message = begin(replace(mlflow_spec, experiment="gone"), tmp_path / "run").close()
    assert "'gone' is deleted" in message
    assert "tracking.experiment" in message


def test_a_killed_writer_loses_nothing_and_its_run_is_closed_as_killed(
    client, mlflow_server, mlflow_spec, tmp_path
):
    with writer(tmp_path / "run", mlflow_server.uri, "tests", "die") as process:
        assert process.wait(30) == -9
    assert read_run(tmp_path / "run").status == "KILLED"
    (done,) = sync([tmp_path / "run"], address(mlflow_spec, tmp_path), patience=30.0)
    assert (done.remaining, done.problem) == (0, "")
    assert history(client, tmp_path / "run", "train/loss") == [(i, float(i)) for i in range(200)]
    assert client.get_run(mlflow_id(tmp_path / "run")).info.status == "KILLED"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # mlflow's own use of SQLAlchemy
def test_processes_that_create_one_database_and_experiment_at_once_all_deliver(tmp_path):
    processes = [writer(tmp_path / f"run{i}", "", "race", "close") for i in range(2)]
    for process in processes:
        with process:
            assert process.communicate(timeout=80)[0].strip() == ""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert [e.name for e in client.search_experiments() if e.name != "Default"] == ["race"]
    for i in range(2):
        assert len(history(client, tmp_path / f"run{i}", "train/loss")) == 200


def test_a_killed_run_with_a_dead_server_leaves_no_process_behind(dead_uri, tmp_path):
    with writer(tmp_path / "run", dead_uri, "tests", "die", linger=1.0) as process:
        assert process.wait(30) == -9
    follower = int((tmp_path / "run/delivery/pid").read_text())
    until = time.monotonic() + 20
    while process_started(follower) is not None:
        assert time.monotonic() < until, "the delivery process outlives its bound"
        time.sleep(0.2)
    assert "not delivered yet" in (tmp_path / "run/delivery/log.txt").read_text()
