"""Delivery to a real MLflow server, alive, dead, killed and restarted."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from llmexp.track.config import MlflowSpec
from llmexp.track.delivery import destination, sync
from llmexp.track.runs import read_run
from llmexp.track.tracker import RunTracker, start


def begin(spec: MlflowSpec, run_dir: Path, parent=None, **more) -> RunTracker:
    tracker = start(
        spec, run_dir=run_dir, name=run_dir.name, stage="pretrain", outputs=run_dir.parent, parent=parent, **more
    )
    assert isinstance(tracker, RunTracker)
    return tracker


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
                stage.text("hello", "samples/one.md")
                assert not stage.delivers
    parent = client.get_run(mlflow_id(tmp_path / "pipeline"))
    for name in ("collect", "pretrain"):
        run = client.get_run(mlflow_id(tmp_path / name))
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.info.status == "FINISHED"
        assert run.info.run_name == name
        assert run.data.metrics["train/loss"] == 2.5
        assert {f.path for f in client.list_artifacts(run.info.run_id)} >= {"environment.json", "events.jsonl", "samples"}


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


def test_long_parameters_are_cut_but_stay_different(client, mlflow_spec, tmp_path):
    texts = {f"note{n}": "x" * n for n in (249, 250, 251, 500, 501, 6000, 6001)}
    texts |= {"note7000a": "x" * 7000 + "a", "note7000b": "x" * 7000 + "b"}
    long_keys = {"k" * 300 + end: end for end in "ab"}
    with begin(mlflow_spec, tmp_path / "run") as tracker:
        tracker.params({"data": texts, **long_keys, "a": {"b c": 1, "b?c": 2, "b!c": 3}})
    run = client.get_run(mlflow_id(tmp_path / "run"))
    for name, text in texts.items():
        sent = run.data.params[f"data.{name}"]
        assert sent == text if len(text) <= 6000 else (len(sent) == 6000 and "sha256:" in sent)
    assert run.data.params["data.note7000a"] != run.data.params["data.note7000b"]
    assert len(run.data.params) == len(texts) + 5
    whole = client.download_artifacts(run.info.run_id, "config.yaml", str(tmp_path))
    assert texts["note7000a"] in Path(whole).read_text().replace("\n", "").replace(" ", "")


def test_non_finite_values_arrive(client, mlflow_spec, tmp_path):
    with begin(mlflow_spec, tmp_path / "run") as tracker:
        tracker.metrics({"train/loss": float("nan"), "a": float("inf")}, 1)
    (value,) = [v for _, v in history(client, tmp_path / "run", "train/loss")]
    assert value != value


def test_lineage_is_told_as_tags_and_as_a_file(client, mlflow_spec, tmp_path):
    class Artifact:
        kind, fingerprint, path = "shards", "f" * 32, tmp_path / "store"

    with begin(mlflow_spec, tmp_path / "run") as tracker:
        tracker.lineage({"shards": Artifact(), "models": [Artifact(), Artifact()]}, Artifact())
    run = client.get_run(mlflow_id(tmp_path / "run"))
    assert run.data.tags["input.shards"] == "shards/" + "f" * 32
    assert run.data.tags["output"] == "shards/" + "f" * 32
    assert "lineage.json" in {f.path for f in client.list_artifacts(run.info.run_id)}


def test_a_run_that_fails_or_is_interrupted_says_so(client, mlflow_spec, tmp_path):
    from llmexp.track.progress import Interrupted

    for error, status in ((RuntimeError("boom"), "FAILED"), (Interrupted("later"), "KILLED")):
        with pytest.raises(type(error)), begin(mlflow_spec, tmp_path / status):
            raise error
        assert client.get_run(mlflow_id(tmp_path / status)).info.status == status
        assert read_run(tmp_path / status).status == status


def test_a_dead_server_slows_nothing_and_loses_nothing(client, mlflow_server, mlflow_spec, tmp_path):
    mlflow_server.kill()
    spec = replace(mlflow_spec, close_wait=1.0, linger=1.0)
    begun = time.monotonic()
    tracker = begin(spec, tmp_path / "run")
    for step in range(3000):
        tracker.metrics({"train/loss": step / 7, "train/lr": 1e-3}, step)
    logged = time.monotonic() - begun
    message = tracker.close()
    assert logged < 5.0
    assert time.monotonic() - begun < logged + 5.0
    assert "llmexp sync" in message
    mlflow_server.start()
    where = destination(spec, tmp_path)
    (done,) = sync([tmp_path / "run"], where, patience=30.0)
    assert (done.remaining, done.problem) == (0, "")
    assert sync([tmp_path / "run"], where)[0].delivered == 0
    (tmp_path / "run" / "delivery" / where.name / "cursor.json").unlink()
    assert sync([tmp_path / "run"], where)[0].delivered > 3000
    assert history(client, tmp_path / "run", "train/loss") == [(i, i / 7) for i in range(3000)]
    assert client.get_run(mlflow_id(tmp_path / "run")).info.status == "FINISHED"


def test_a_server_that_is_killed_and_restarted_gets_everything_once(client, mlflow_server, mlflow_spec, tmp_path):
    tracker = begin(replace(mlflow_spec, close_wait=60.0, linger=60.0), tmp_path / "run")
    for step in range(2000):
        tracker.metrics({"train/loss": float(step)}, step)
        if step == 1000:
            time.sleep(2.0)
            mlflow_server.kill()
    mlflow_server.start()
    assert tracker.close() == ""
    assert history(client, tmp_path / "run", "train/loss") == [(i, float(i)) for i in range(2000)]


WRITER = """
    import os, sys, time
    from pathlib import Path
    from llmexp.track.config import MlflowSpec
    from llmexp.track.tracker import start
    spec = MlflowSpec(uri=sys.argv[2] or None, experiment=sys.argv[3], system_every=0.0, close_wait=30.0, linger=20.0)
    run_dir = Path(sys.argv[1])
    tracker = start(spec, run_dir=run_dir, name=run_dir.name, stage="pretrain", outputs=run_dir.parent)
    for step in range(200):
        tracker.metrics({"train/loss": float(step)}, step)
    if sys.argv[4] == "die":
        os.kill(os.getpid(), 9)
    print(tracker.close())
"""


def writer(run_dir: Path, uri: str, experiment: str, end: str) -> subprocess.Popen[str]:
    arguments = [str(run_dir), uri, experiment, end]
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), *arguments], stdout=subprocess.PIPE, text=True)


def test_a_killed_writer_loses_nothing_and_its_run_is_closed_as_killed(client, mlflow_server, mlflow_spec, tmp_path):
    from tests.track.conftest import wait_for

    with writer(tmp_path / "run", mlflow_server.uri, "tests", "die") as process:
        assert process.wait(30) == -9
    assert read_run(tmp_path / "run").status == "KILLED"
    (done,) = sync([tmp_path / "run"], destination(mlflow_spec, tmp_path), patience=30.0)
    assert (done.remaining, done.problem) == (0, "")
    assert history(client, tmp_path / "run", "train/loss") == [(i, float(i)) for i in range(200)]
    wait_for(
        lambda: client.get_run(mlflow_id(tmp_path / "run")).info.status == "KILLED", 10, "the run was left running"
    )


def test_processes_that_create_one_database_and_experiment_at_once_all_deliver(tmp_path):
    processes = [writer(tmp_path / f"run{i}", "", "race", "close") for i in range(3)]
    for process in processes:
        with process:
            assert process.communicate(timeout=80)[0].strip() == ""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert [e.name for e in client.search_experiments() if e.name != "Default"] == ["race"]
    for i in range(3):
        assert len(history(client, tmp_path / f"run{i}", "train/loss")) == 200
