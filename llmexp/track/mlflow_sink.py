"""Delivery of a run's records to MLflow. The only module that imports mlflow; training never loads it."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import logging
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import SoftFileLease

from llmexp.track.delivery import LEASE, Refused, Unreachable
from llmexp.track.masking import without_credentials
from llmexp.track.runs import DELIVERY, EVENTS, Run

log = logging.getLogger(__name__)

PARAM_LENGTH, TAG_LENGTH, KEY_LENGTH = 6000, 8000, 250
"""Characters that MLflow takes (mlflow 3: mlflow/utils/validation.py)."""
OLDER_LENGTHS = (500, 250)
"""Limits of parameter values in older servers, tried when one refuses a value."""
MOST_METRICS, MOST_PARAMS, MOST_TAGS, MOST_BYTES = 1000, 100, 100, 800_000
"""Entities and bytes of one request; MLflow's own limits are 1000, 100, 100 and 1 MB."""
RUN_TAG = "llmexp.run"


def safe_key(key: str) -> str:
    """A key that MLflow takes, different for different keys.

    ``@`` becomes ``:`` (``train/loss:retry1``). A key with other characters outside MLflow's set,
    a colon of its own, an ambiguous path, or too many characters gets a hash of the whole behind it.
    """
    plain = key.replace("@", ":")
    clean = re.sub(r"[^\w\-. :/]", "_", plain, flags=re.ASCII)
    clean = "/".join(part for part in posixpath.normpath(clean).split("/") if part not in ("", ".", ".."))
    if clean == plain and ":" not in key and len(clean) <= KEY_LENGTH:
        return clean
    return f"{clean[: KEY_LENGTH - 9]}-{_digest(key, 8)}"


def shortened(value: str, length: int) -> str:
    """A value cut to ``length`` characters, its end replaced by a hash of the whole when it is longer."""
    if len(value) <= length:
        return value
    mark = f"… sha256:{_digest(value, 16)}"
    return value[: length - len(mark)] + mark


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:length]


class MlflowSink:
    """One run in MLflow.

    Args:
        uri: server or database.
        experiment: name of the experiment, created when it is new.
        artifacts: folder URI for a new experiment's artifacts; empty leaves it to the server.
    """

    def __init__(self, uri: str, experiment: str, artifacts: str) -> None:
        self.uri = uri
        self.experiment = experiment
        self.artifacts = artifacts
        self._run_id = ""
        self._run_dir = Path()
        self._client: Any = None

    def open(self, run: Run, run_dir: Path, remote: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
        """Continue the run ``remote["run_id"]``, or find it by its tag, or create it."""
        self._run_dir = run_dir
        with self._creating():
            self._client = _calling(self._connect)
            experiment_id = _calling(self._experiment_id)
            self._run_id = _calling(self._find, run, experiment_id, remote.get("run_id"))
            if not self._run_id:
                self._run_id = _calling(self._create, run, experiment_id, parent)
        return {"run_id": self._run_id, "experiment_id": experiment_id, "uri": without_credentials(self.uri)}

    def deliver(self, records: list[dict[str, Any]]) -> None:
        """Send metrics, parameters and tags in few large requests; then files, then the status."""
        metrics, params, tags = self._entities(records)
        self._send("metrics", metrics, MOST_METRICS)
        self._send("params", params, MOST_PARAMS)
        self._send("tags", tags, MOST_TAGS)
        for record in records:
            if "file" in record:
                self._upload(self._run_dir / record["file"], record["as"])
        for record in records:
            if record.get("event") == "start":
                _calling(self._client.update_run, self._run_id, status="RUNNING")
            elif record.get("event") == "end":
                self._upload(self._run_dir / EVENTS, EVENTS)
                status, ended = record["fields"]["status"], record["t"]
                _calling(self._client.set_terminated, self._run_id, status, ended)

    def close(self) -> None:
        """Nothing is held open between requests."""
        self._client = None

    def _creating(self) -> contextlib.AbstractContextManager[Any]:
        """A lease beside a SQLite file: of several processes that create one at once all but one fail."""
        scheme, _, path = self.uri.partition(":///")
        if not scheme.startswith("sqlite"):
            return contextlib.nullcontext()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return SoftFileLease(f"{path}.lease", lease_duration=LEASE)

    def _connect(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                return self._client.create_experiment(self.experiment, self._artifact_location())
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self._client.get_experiment_by_name(self.experiment)
        if found.lifecycle_stage == "deleted":
            raise Refused(
                f"the MLflow experiment {self.experiment!r} is deleted; give another tracking.experiment, "
                f"or restore it: mlflow experiments restore --experiment-id {found.experiment_id}"
            )
        return found.experiment_id

    def _artifact_location(self) -> str | None:
        return f"{self.artifacts}/{_digest(self.experiment, 8)}" if self.artifacts else None

    def _find(self, run: Run, experiment_id: str, run_id: str | None) -> str:
        """The id of the run at the server, or an empty text when it is not there."""
        from mlflow.exceptions import MlflowException

        if run_id is not None:
            try:
                info = self._client.get_run(run_id).info
                if info.lifecycle_stage == "deleted":
                    raise Refused(
                        f"run {run_id} is deleted; restore it: mlflow runs restore --run-id {run_id}"
                    )
                return info.run_id
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
        found = self._client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
        return found[0].info.run_id if found else ""

    def _create(self, run: Run, experiment_id: str, parent: dict[str, Any]) -> str:
        tags = {RUN_TAG: run.id, "llmexp.stage": run.stage, "llmexp.run_dir": str(self._run_dir)}
        tags |= {
            "mlflow.source.name": "llmexp",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": _user(),
        }
        if parent:
            tags["mlflow.parentRunId"] = parent["run_id"]
        created = self._client.create_run(experiment_id, int(run.started * 1000), tags, run_name=run.name)
        return created.info.run_id

    def _entities(self, records: list[dict[str, Any]]) -> tuple[list[Any], list[Any], list[Any]]:
        from mlflow.entities import Metric, Param, RunTag

        metrics: list[Any] = []
        params: list[Any] = []
        tags: list[Any] = []
        for record in records:
            for key, value in record.get("m", {}).items():
                metrics.append(Metric(safe_key(key), float(value), record["t"], record["s"]))
            for key, text in record.get("params", {}).items():
                params.append(Param(safe_key(key), shortened(text, PARAM_LENGTH)))
            for key, text in record.get("tags", {}).items():
                tags.append(RunTag(safe_key(key), shortened(text, TAG_LENGTH)))
        return metrics, params, tags

    def _send(self, kind: str, entities: Sequence[Any], most: int) -> None:
        for chunk in _chunks(entities, most):
            self._send_or_split(kind, chunk)

    def _send_or_split(self, kind: str, chunk: Sequence[Any]) -> None:
        """Send a chunk; one that is refused is halved until the entity at fault stands alone."""
        try:
            _calling(self._client.log_batch, self._run_id, **{kind: chunk})
        except Refused as error:
            if len(chunk) > 1:
                half = len(chunk) // 2
                self._send_or_split(kind, chunk[:half])
                self._send_or_split(kind, chunk[half:])
            else:
                self._refused(kind, chunk[0], error)

    def _refused(self, kind: str, entity: Any, error: Refused) -> None:
        """Try a parameter at older servers' limits; what is refused then is kept beside the cursor."""
        from mlflow.entities import Param

        for length in OLDER_LENGTHS if kind == "params" else ():
            if len(entity.value) > length:
                try:
                    shorter = Param(entity.key, shortened(entity.value, length))
                    _calling(self._client.log_batch, self._run_id, params=[shorter])
                    return
                except Refused as again:
                    error = again
        self._note_refused(kind, entity.key, str(entity.value), error)

    def _note_refused(self, kind: str, key: str, value: str, error: Refused) -> None:
        log.warning("MLflow refuses %s %r of %s: %s", kind, key, self._run_dir, error)
        with (self._run_dir / DELIVERY / "refused.jsonl").open("a") as file:
            json.dump({"kind": kind, "key": key, "value": value, "problem": str(error)}, file)
            file.write("\n")

    def _upload(self, path: Path, name: str) -> None:
        """Send a file. One that is no longer there is named in the log and left out."""
        if not path.exists():
            log.warning("%s is gone and cannot be delivered as %s", path, name)
            return
        try:
            _calling(self._put, path, name)
        except Refused as error:
            self._note_refused("file", name, str(path), error)

    def _put(self, path: Path, name: str) -> None:
        """Upload under ``name``; MLflow takes a file's own name, so another name goes by a linked copy."""
        folder, _, base = name.rpartition("/")
        if path.name == base:
            self._client.log_artifact(self._run_id, str(path), folder or None)
            return
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as temporary:
            copy = Path(temporary) / base
            try:
                os.link(path, copy)
            except OSError:  # a file system without hard links
                shutil.copyfile(path, copy)
            self._client.log_artifact(self._run_id, str(copy), folder or None)


def _chunks(entities: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    """Slices within MLflow's number and size of one request."""
    begin, size = 0, 0
    for i, entity in enumerate(entities):
        weight = len(json.dumps([entity.key, str(entity.value)])) + 64
        if i > begin and (i - begin >= most or size + weight > MOST_BYTES):
            yield entities[begin:i]
            begin, size = i, 0
        size += weight
    if begin < len(entities):
        yield entities[begin:]


def _calling(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """A call to MLflow, its many errors told as Refused (bad request) or Unreachable (all the rest)."""
    import requests
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return call(*arguments, **keywords)
    except MlflowException as error:
        status = error.get_http_status_code()
        retry = status >= 500 or status in (401, 403, 408, 429)
        raise (Unreachable if retry else Refused)(str(error)) from error
    except (requests.RequestException, SQLAlchemyError, OSError) as error:
        raise Unreachable(str(error)) from error


def _user() -> str:
    """Who runs this; in a container the number of a user that has no name there."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
