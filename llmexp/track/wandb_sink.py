"""Delivery of a run's records to Weights & Biases. The only module that imports wandb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmexp.track.delivery import Unreachable
from llmexp.track.runs import Run

EXIT_CODES = {"FINISHED": 0, "FAILED": 1, "KILLED": 130}


class WandbSink:
    """One run at wandb; offline, its files lie in the run folder's ``wandb`` and `wandb sync` sends them.

    wandb takes rows in increasing order only. A row's number is therefore its place in the journal,
    so that a row sent again after a crash counts as old; the training step is the field ``step``.

    Args:
        uri: server; empty is wandb's own.
        experiment: the project.
        entity: owner of the project; empty is the account's default.
        mode: ``online`` or ``offline``.
    """

    def __init__(self, uri: str, experiment: str, entity: str, mode: str) -> None:
        self.uri = uri
        self.experiment = experiment
        self.entity = entity
        self.mode = mode
        self._run: Any = None
        self._run_dir = Path()
        self._exit_code = 0

    def open(self, run: Run, run_dir: Path, remote: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
        """Start or resume the wandb run whose id is the run's own; a pipeline's stages share a group."""
        del remote
        import wandb

        self._run_dir = run_dir
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
        if self.uri:
            settings.base_url = self.uri
        try:
            self._run = wandb.init(
                project=self.experiment,
                entity=self.entity or None,
                id=run.id,
                name=run.name,
                job_type=run.stage,
                group=parent.get("run_id"),
                dir=str(run_dir),
                mode=self.mode,  # type: ignore[arg-type]
                resume="allow" if self.mode == "online" else None,
                reinit="create_new",
                settings=settings,
            )
        except (wandb.errors.Error, OSError) as error:
            raise Unreachable(str(error)) from error
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        return {"run_id": run.id, "project": self.experiment, "mode": self.mode}

    def deliver(self, records: list[dict[str, Any]]) -> None:
        """Hand rows, configuration, files and the exit status to wandb's own writer."""
        for record in records:
            if "m" in record:
                row = {key: float(value) for key, value in record["m"].items()}
                self._run.log(
                    {**row, "step": record["s"], "_timestamp": record["t"] / 1000}, step=record.get("at")
                )
            elif "params" in record:
                self._run.config.update(record["params"], allow_val_change=True)
            elif "tags" in record:
                self._run.config.update(
                    {f"tag.{k}": v for k, v in record["tags"].items()}, allow_val_change=True
                )
            elif "file" in record:
                self._run.save(
                    str(self._run_dir / record["file"]), base_path=str(self._run_dir), policy="now"
                )
            elif record.get("event") == "end":
                self._exit_code = EXIT_CODES[record["fields"]["status"]]

    def close(self) -> None:
        """Finish wandb's files."""
        if self._run is not None:
            self._run.finish(exit_code=self._exit_code)
            self._run = None
