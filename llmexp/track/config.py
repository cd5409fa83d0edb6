"""Specs of the tracking group. None of their values can change what a stage produces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from llmexp.config.spec import Mistake, Spec, setting

MLFLOW_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")


@dataclass(kw_only=True)
class TrackingSpec(Spec):
    """What is recorded of a run beside its results; this base delivers nothing anywhere."""

    sink: ClassVar[str] = ""
    """``module:class`` of the sink that delivers; empty where the run folder alone is written."""

    experiment: str = setting("Name under which runs are grouped.", default="llmexp", result=False)
    system_every: float = setting(
        "Time between two samples of CPU, memory, disk, network and GPU; 0 takes none.",
        default=10.0,
        unit="s",
        ge=0,
        result=False,
    )

    def address(self, outputs: Path) -> dict[str, str]:
        """The keywords of this spec's sink, with defaults that depend on the outputs folder."""
        del outputs
        return {}


@dataclass(kw_only=True)
class JsonlSpec(TrackingSpec):
    """The run folder's journal alone, with system metrics."""


@dataclass(kw_only=True)
class NoTrackingSpec(TrackingSpec):
    """The journal that resume and reports need, and nothing else."""

    system_every: float = setting(
        "Time between two system samples; 0 takes none.", default=0.0, unit="s", ge=0, result=False
    )


@dataclass(kw_only=True)
class DeliveredSpec(TrackingSpec):
    """What every tracker that is delivered to has."""

    uri: str | None = setting(
        "Address of the tracking server; null is the option's default.", default=None, result=False
    )
    close_wait: float = setting(
        "How long the end of a run waits for its delivery; afterwards delivery goes on by itself.",
        default=5.0,
        unit="s",
        ge=0,
        result=False,
    )
    linger: float = setting(
        "How long the delivery process outlives its run when the server does not answer.",
        default=60.0,
        unit="s",
        ge=0,
        result=False,
    )


@dataclass(kw_only=True)
class MlflowSpec(DeliveredSpec):
    """MLflow: SQLite under the outputs folder, or any server or database by its URI."""

    sink: ClassVar[str] = "llmexp.track.mlflow_sink:MlflowSink"

    def address(self, outputs: Path) -> dict[str, str]:
        """URI, experiment and, for a database without a server, the folder of MLflow's artifacts."""
        outputs = outputs.absolute()
        uri = self.uri or f"sqlite:///{outputs / 'mlflow.db'}"
        scheme, _, path = uri.partition(":///")
        if scheme == "sqlite" and not path.startswith("/"):
            uri = f"sqlite:///{Path(path).absolute()}"
        served = uri.startswith(("http://", "https://", "databricks"))
        artifacts = "" if served else (outputs / "mlartifacts").as_uri()
        return {"uri": uri, "experiment": self.experiment, "artifacts": artifacts}

    def check(self) -> Iterator[Mistake]:
        """The URI names a server or a database; MLflow no longer takes a plain folder."""
        if self.uri is None:
            return
        scheme = urlsplit(self.uri).scheme.partition("+")[0]
        if self.uri != "databricks" and scheme not in MLFLOW_SCHEMES:
            yield Mistake(
                "uri",
                f"{self.uri!r} is neither a server nor a database that MLflow takes",
                "give http://HOST:PORT, sqlite:///FILE.db or another database; null is SQLite under outputs",
            )


@dataclass(kw_only=True)
class WandbSpec(DeliveredSpec):
    """Weights & Biases: offline unless a mode or a server is given."""

    sink: ClassVar[str] = "llmexp.track.wandb_sink:WandbSink"
    needs_modules: ClassVar[tuple[str, ...]] = ("wandb",)
    extra: ClassVar[str] = "wandb"

    entity: str | None = setting(
        "Team or user that owns the project; null is the account's default.", default=None, result=False
    )
    mode: str = setting(
        "Send while running, or keep files that `wandb sync` sends; auto is online when a uri is given.",
        default="auto",
        choices=("auto", "online", "offline"),
        result=False,
    )

    def address(self, outputs: Path) -> dict[str, str]:
        """Project, entity, server and mode; offline files stay in the run folder."""
        del outputs
        mode = self.mode if self.mode != "auto" else ("online" if self.uri else "offline")
        return {
            "uri": self.uri or "",
            "experiment": self.experiment,
            "entity": self.entity or "",
            "mode": mode,
        }
