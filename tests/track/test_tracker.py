"""What a stage logs, as the run folder keeps it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmexp.track.config import JsonlSpec, MlflowSpec, NoTrackingSpec, TrackingSpec, WandbSpec
from llmexp.track.journal import read_records
from llmexp.track.masking import without_credentials
from llmexp.track.runs import JOURNAL, read_events, read_metrics, read_run
from llmexp.track.tracker import NodeTracker, RunTracker, Tracker, start


def begin(run_dir: Path, spec: TrackingSpec | None = None, **more) -> RunTracker:
    tracker = start(
        spec or NoTrackingSpec(), run_dir=run_dir, name="n", stage="sft", outputs=run_dir.parent, **more
    )
    assert isinstance(tracker, RunTracker)
    return tracker


def params(run_dir: Path) -> dict[str, str]:
    """The parameters in a run's journal; the first value of each."""
    found: dict[str, str] = {}
    for record, _ in read_records(run_dir / JOURNAL):
        found = record.get("params", {}) | found
    return found


def test_a_run_reads_back_as_it_was_logged(tmp_path):
    with begin(tmp_path) as tracker:
        tracker.params({"model": {"d_model": 64, "dims": [1, 2]}, "data": [{"path": "a"}, {"path": "b"}]})
        tracker.metrics({"train/loss": 2.0, "val/loss": 3.0}, 1)
        tracker.metrics({"train/loss": 1.0}, 2)
        tracker.event("checkpoint", step=2, loss=float("nan"), path=tmp_path / "x")
    metrics = read_metrics(tmp_path)
    assert metrics["train/loss"][:2] == ([1, 2], [2.0, 1.0])
    assert params(tmp_path) == {
        "model.d_model": "64", "model.dims": "[1, 2]", "data.0.path": "a", "data.1.path": "b"
    }  # fmt: skip
    assert [e["event"] for e in read_events(tmp_path)] == ["start", "checkpoint", "end"]
    assert [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()] == [
        "start", "checkpoint", "end"
    ]  # fmt: skip
    run = read_run(tmp_path)
    assert (run.name, run.stage, run.status, run.incarnation) == ("n", "sft", "FINISHED", 1)
    assert run.ended is not None
    assert run.ended >= run.started


def test_a_resumed_run_keeps_its_id_and_first_parameters(tmp_path):
    with begin(tmp_path) as tracker:
        tracker.params({"a": 1, "b": 2})
    first = read_run(tmp_path)
    with begin(tmp_path) as tracker:
        tracker.params({"a": 1, "b": 3})
    again = read_run(tmp_path)
    assert (again.id, again.started, again.incarnation) == (first.id, first.started, 2)
    assert params(tmp_path) == {"a": "1", "b": "2"}
    assert '"param.b@resume1":"3"' in (tmp_path / "journal.jsonl").read_text()
    assert (tmp_path / "artifacts" / "config.yaml").read_text() == "a: 1\nb: 2\n"
    assert (tmp_path / "artifacts" / "config.resume1.yaml").read_text() == "a: 1\nb: 3\n"


def test_secrets_appear_in_no_file_of_the_run(tmp_path):
    secret = "hf_SeCrEt123"
    with begin(tmp_path, mask={secret}) as tracker:
        tracker.params({"token": secret, "url": f"https://{secret}@hub", secret: 1})
        tracker.event("signal", text=f"saw {secret}")
        tracker.tags({"who": secret})
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_only_rank_zero_writes(tmp_path):
    spec, names = NoTrackingSpec(), {"name": "n", "stage": "sft", "outputs": tmp_path}
    other = start(spec, run_dir=tmp_path / "run", rank=1, local_rank=1, **names)
    with other:
        other.metrics({"a": 1.0}, 0)
        other.params({"a": 1})
        other.event("checkpoint")
        other.file(tmp_path / "x", "y")
    assert type(other) is Tracker
    assert not (tmp_path / "run").exists()


def test_another_nodes_first_rank_samples_its_system_into_the_same_run(tmp_path):
    import time

    with begin(tmp_path, JsonlSpec(system_every=0.1)):
        other = start(
            JsonlSpec(system_every=0.1), run_dir=tmp_path, name="n", stage="sft", outputs=tmp_path,
            rank=2, node=1, local_rank=0,
        )  # fmt: skip
        assert isinstance(other, NodeTracker)
        time.sleep(0.5)
        other.close()
    metrics = read_metrics(tmp_path)
    for prefix in ("system/", "system/node1/"):
        series = metrics[f"{prefix}process_memory_rss_bytes"]
        assert series.steps == list(range(len(series.steps)))
        assert min(series.values) > 1e6


def test_a_file_is_kept_with_the_run_and_none_outside_it(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n")
    with begin(tmp_path / "run") as tracker:
        tracker.file(tmp_path / "table.csv", "tables/eval.csv")
        with pytest.raises(ValueError, match="outside"):
            tracker.file(tmp_path / "table.csv", "../../escaped")
    assert (tmp_path / "run/artifacts/tables/eval.csv").read_text() == "a,b\n"


def test_training_imports_neither_mlflow_nor_wandb_nor_torch():
    code = (
        "import sys, llmexp.track.tracker, llmexp.track.progress, llmexp.track.delivery\n"
        "print(sorted({'mlflow', 'wandb', 'torch', 'rich', 'psutil', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_is_no_mlflow_address():
    (mistake,) = MlflowSpec(uri="./mlruns").check()
    assert mistake.path == "uri"
    assert not list(MlflowSpec(uri="http://localhost:5000").check())


def test_the_default_database_lies_under_the_outputs_folder(tmp_path):
    address = MlflowSpec().address(tmp_path)
    assert address["uri"] == f"sqlite:///{tmp_path}/mlflow.db"
    assert address["artifacts"] == (tmp_path / "mlartifacts").as_uri()


def test_wandb_is_offline_unless_told_otherwise(tmp_path):
    assert WandbSpec().address(tmp_path)["mode"] == "offline"
    assert WandbSpec(uri="https://wandb.example").address(tmp_path)["mode"] == "online"
    assert WandbSpec(mode="online").address(tmp_path)["mode"] == "online"


def test_no_tracking_value_counts_as_a_result():
    from llmexp.config.spec import settings

    for spec in (MlflowSpec, WandbSpec, JsonlSpec, NoTrackingSpec):
        assert not [f.name for f in settings(spec) if f.metadata["result"]]


def test_wandb_gets_the_run_as_offline_files(tmp_path):
    with begin(tmp_path / "run", WandbSpec(system_every=0.0, close_wait=60.0)) as tracker:
        tracker.params({"lr": 0.1})
        tracker.metrics({"train/loss": 2.0}, 1)
        tracker.metrics({"train/loss": 1.0}, 2)
    log = (tmp_path / "run/delivery/log.txt").read_text()
    (file,) = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    assert read_run(tmp_path / "run").id in file.name, log
    assert wandb_losses(file) == [(1.0, 2.0), (2.0, 1.0)], log


def wandb_losses(file: Path) -> list[tuple[float, float]]:
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in leveldb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
        if "train/loss" in items:
            rows.append((items["step"], items["train/loss"]))
    return rows


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format in blocks of 32 KiB behind a 7-byte header."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


@pytest.mark.parametrize(
    "text, expected",
    [
        ("at http://user:pass@host:1/x", "at http://***@host:1/x"),
        ("postgresql://u:p@ss@host/db?x=1 and mail a@b.c", "postgresql://***@host/db?x=1 and mail a@b.c"),
        ("https://host/@name/post", "https://host/@name/post"),
        ("http://host/x", "http://host/x"),
        ("postgresql://host/db?user=u&password=pa$s&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        (r"http\://host/x?api_key\=abc and more", r"http\://host/x?api_key\=*** and more"),
        ("'https://host/?access_token=abc'", "'https://host/?access_token=***'"),
        ("['https://host/?password=a}b'c&x=1']", "['https://host/?password=***&x=1']"),
        ("https://a.blob.net/c?sv=1&sig=a%2Fb", "https://a.blob.net/c?sv=1&sig=***"),
        (
            "https://b/o?X-Amz-Credential=A&X-Amz-Signature=B",
            "https://b/o?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        ("jdbc://h/db?sslpassword=S3&dbpassword=S4", "jdbc://h/db?sslpassword=***&dbpassword=***"),
        ("https://host/?accessToken=a&clientSecret=b", "https://host/?accessToken=***&clientSecret=***"),
        ("https://host/?authtoken=a&x-key=b", "https://host/?authtoken=***&x-key=***"),
        ("https://host/?monkey=5&author=me", "https://host/?monkey=5&author=me"),
        ("https://host/?token=${oc.env:T}", "https://host/?token=${oc.env:T}"),
        ("https://host/?tokens=5&page=2", "https://host/?tokens=5&page=2"),
    ],
)
def test_addresses_are_shown_without_user_and_password(text, expected):
    assert without_credentials(text) == expected
