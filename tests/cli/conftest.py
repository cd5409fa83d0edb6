"""Run folders and artifacts as real runs leave them, made through the store and the tracker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmexp.cli.main import main
from llmexp.stage.context import External
from llmexp.stage.runs import PipelineRecord, StageLink, new_folder
from llmexp.store.artifact import Artifact
from llmexp.store.fingerprint import fingerprint
from llmexp.store.store import Store
from llmexp.track import tracker as tracking
from llmexp.track.config import NoTrackingSpec, TrackingSpec
from llmexp.track.runs import write_json


@dataclass
class World:
    """An outputs folder, and what makes runs in it."""

    outputs: Path
    store: Store

    def run(
        self,
        *,
        text: str = "hello",
        lr: float = 1e-3,
        steps: int = 5,
        tracking_spec: TrackingSpec | None = None,
        fail: bool = False,
        leave: bool = False,
        title: str = "pretrain",
    ) -> Path:
        """A pipeline of two stages: ``collect`` (found in the store when it is there) and ``pretrain``."""
        spec = tracking_spec or NoTrackingSpec()
        folder = new_folder(self.outputs / "runs", title)
        corpus = {"_target_": "llmexp.stage.config.Collect", "data": {"path": text}}
        training = {
            "_target_": "llmexp.stage.config.Pretrain",
            "optimizer": {"lr": lr},
            "trainer": {"max_steps": 10},
        }
        first = fingerprint(kind="corpus", stage="collect", version=1, config=corpus, inputs={}, source={})
        second = fingerprint(
            kind="model", stage="pretrain", version=1, config=training, inputs={"corpus": first}, source={}
        )
        record = PipelineRecord(
            title=title,
            command=f"llmexp stage={title} optimizer.lr={lr}",
            created=time.time(),
            overrides=[f"optimizer.lr={lr}"],
            stages={
                "collect": StageLink(stage="collect", kind="corpus", fingerprint=first),
                "pretrain": StageLink(
                    stage="pretrain", kind="model", fingerprint=second, needs={"corpus": "collect"}
                ),
            },
        )
        parent = tracking.start(spec, run_dir=folder, name=title, stage="pipeline", outputs=self.outputs)
        record.write(folder)
        self._collect(record, folder, corpus, text, parent, spec)
        done = self._pretrain(record, folder, training, steps, parent, spec, fail=fail, leave=leave)
        if leave:
            record.write(folder)
            return folder
        record.status, record.seconds = ("done", 1.5) if done else ("failed", 1.5)
        record.write(folder)
        parent.close("FINISHED" if done else "FAILED")
        return folder

    def _collect(
        self, record: PipelineRecord, folder: Path, config: dict, text: str, parent: Any, spec: TrackingSpec
    ) -> None:
        link = record.stages["collect"]
        found = self.store.find("corpus", link.fingerprint)
        link.cached = found is not None
        if found is None:
            link.run_dir = str(folder / "collect")
            with self._tracker(folder, "collect", parent, spec) as tracker:
                tracker.params(config)
                found = self._publish(link, config, {}, folder, {"train.txt": text}, {"documents": 1})
        link.status, link.path, link.seconds = "done", str(found.path), 0.5

    def _pretrain(
        self,
        record: PipelineRecord,
        folder: Path,
        config: dict,
        steps: int,
        parent: Any,
        spec: TrackingSpec,
        *,
        fail: bool,
        leave: bool,
    ) -> bool:
        link, corpus = record.stages["pretrain"], record.stages["collect"]
        link.run_dir, link.status = str(folder / "pretrain"), "running"
        tracker = self._tracker(folder, "pretrain", parent, spec)
        tracker.params(config)
        out = External("model", link.fingerprint, self.store.root / "model" / link.fingerprint)
        tracker.lineage({"corpus": Artifact.load(Path(corpus.path))}, out)
        for step in range(1, steps + 1):
            tracker.metrics(
                {
                    "train/loss": 5.0 / step + config["optimizer"]["lr"],
                    "perf/tokens_per_second": 1000.0 * step,
                },
                step,
            )
        if leave:
            return False
        if fail:
            (folder / "pretrain" / "error.txt").write_text(
                "Traceback …\nValueError: the loss is not finite\n"
            )
            link.status, link.error, link.seconds = "failed", "ValueError: the loss is not finite", 1.0
            tracker.event("error", type="ValueError", message="the loss is not finite")
            tracker.close("FAILED")
            return False
        made = self._publish(
            link,
            config,
            {"corpus": corpus.fingerprint},
            folder,
            {"model.txt": "weights"},
            {"final_loss": 5.0 / steps},
        )
        link.status, link.path, link.seconds = "done", str(made.path), 1.0
        tracker.close()
        return True

    def _tracker(self, folder: Path, name: str, parent: Any, spec: TrackingSpec) -> Any:
        return tracking.start(
            spec, run_dir=folder / name, name=name, stage=name, outputs=self.outputs, parent=parent
        )

    def _publish(
        self, link: StageLink, config: dict, inputs: dict, folder: Path, files: dict[str, str], summary: dict
    ) -> Artifact:
        run_id = f"{folder.parent.name}/{folder.name}/{Path(link.run_dir).name}"
        with self.store.build(
            link.kind, link.fingerprint, stage=link.stage, config=config, inputs=inputs, run_id=run_id
        ) as build:
            for name, text in files.items():
                (build.out / name).write_text(text)
            artifact = build.publish(summary)
        write_json(
            Path(link.run_dir) / "artifact.json",
            {"kind": link.kind, "fingerprint": link.fingerprint, "path": str(artifact.path)},
        )
        return artifact


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty outputs folder."""
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    return World(outputs, Store([outputs / "store"]))


@dataclass
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture
def say(world: World, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a verb on the world's folder."""

    def call(*words: str, places: bool = True) -> Said:
        capsys.readouterr()
        code = main([*words, *(["--outputs", str(world.outputs)] if places else [])])
        found = capsys.readouterr()
        return Said(code, found.out, found.err)

    return call
