"""Run folders and artifacts as real runs leave them, made through the store and the tracker."""

from __future__ import annotations

import io
import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from debug_run import TRAINED

from llmexp.cli.main import main
from llmexp.stage.context import External
from llmexp.stage.runs import PipelineRecord, StageLink, new_folder
from llmexp.store.artifact import Artifact
from llmexp.store.fingerprint import fingerprint
from llmexp.store.store import Store
from llmexp.track import tracker as tracking
from llmexp.track.config import NoTrackingSpec, TrackingSpec

ERROR = "ValueError: the loss is not finite"


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
        end: str = "done",
        spec: TrackingSpec | None = None,
        folder: Path | None = None,
        pause: float = 0.0,
    ) -> Path:
        """A pipeline of two stages: ``collect`` (found in the store when it is there) and ``pretrain``.

        ``end``: done, failed, or left (as a process leaves it that vanishes while it trains).
        """
        making = Making(self, folder or new_folder(self.outputs / "runs", "mine"), spec or NoTrackingSpec())
        making.collect({"data": {"path": text}}, text)
        making.pretrain({"optimizer": {"lr": lr}, "trainer": {"max_steps": 10}}, steps, end, pause)
        if end != "left":
            making.record.status, making.record.seconds = end, 1.5
            making.record.write(making.folder)
            making.tracker.close("FINISHED" if end == "done" else "FAILED")
        return making.folder

    def elsewhere(self, **options: Any) -> BaseProcess:
        """Another process that makes a run and is gone when that is made."""
        process = multiprocessing.get_context("fork").Process(target=self.run, kwargs=options)
        process.start()
        return process

    def left(self, **options: Any) -> Path:
        """A run whose process has vanished while it trained."""
        folder = new_folder(self.outputs / "runs", "mine")
        self.elsewhere(folder=folder, end="left", **options).join()
        return folder


class Making:
    """One run on its way, in the steps that the runner takes."""

    def __init__(self, world: World, folder: Path, spec: TrackingSpec) -> None:
        self.world, self.folder, self.spec = world, folder, spec
        self.tracker = self._start(folder, "pipeline", None)
        self.record = PipelineRecord(
            title="mine", command="llmexp mine", created=time.time(), overrides=["optimizer.lr=1"], stages={}
        )

    def _start(self, folder: Path, name: str, parent: Any) -> Any:
        return tracking.start(
            self.spec, run_dir=folder, name=name, stage=name, outputs=self.world.outputs, parent=parent
        )

    def _link(self, name: str, kind: str, config: dict[str, Any], inputs: dict[str, Any]) -> StageLink:
        print_ = fingerprint(kind=kind, stage=name, version=1, config=config, inputs=inputs, source={})
        link = StageLink(stage=name, kind=kind, fingerprint=print_)
        self.record.stages[name] = link
        return link

    def collect(self, config: dict[str, Any], text: str) -> None:
        """The first stage."""
        link = self._link("collect", "corpus", config, {})
        found = self.world.store.find("corpus", link.fingerprint)
        link.cached = found is not None
        if found is None:
            link.run_dir = str(self.folder / "collect")
            with self._start(self.folder / "collect", "collect", self.tracker) as tracker:
                tracker.params(config)
                found = self._publish(link, config, {}, {"train.txt": text}, {"documents": 1})
        link.status, link.path, link.seconds = "done", str(found.path), 0.5
        self.record.write(self.folder)

    def pretrain(self, config: dict[str, Any], steps: int, end: str, pause: float) -> None:
        """The second stage; it logs a loss of 5 / step + lr."""
        inputs = {"corpus": self.record.stages["collect"].fingerprint}
        link = self._link("pretrain", "model", config, inputs)
        link.run_dir, link.status = str(self.folder / "pretrain"), "running"
        self.record.write(self.folder)
        tracker = self._start(self.folder / "pretrain", "pretrain", self.tracker)
        tracker.params(config)
        corpus = Artifact.load(Path(self.record.stages["collect"].path))
        tracker.lineage({"corpus": corpus}, External("model", link.fingerprint, Path("coming")))
        for step in range(1, steps + 1):
            loss = 5.0 / step + config["optimizer"]["lr"]
            tracker.metrics({"train/loss": loss, "perf/tokens_per_second": 1000.0 * step}, step)
            time.sleep(pause)
        if end == "done":
            made = self._publish(link, config, inputs, {"model.txt": "weights"}, {"final_loss": loss})
            link.status, link.path, link.seconds = "done", str(made.path), 1.0
            tracker.close()
        elif end == "failed":
            Path(link.run_dir, "error.txt").write_text(f"Traceback, most recent call last\n{ERROR}\n")
            link.status, link.error, link.seconds = "failed", ERROR, 1.0
            tracker.close("FAILED")

    def _publish(self, link: StageLink, config: Any, inputs: Any, files: Any, summary: Any) -> Artifact:
        run_id = f"{self.folder.parent.name}/{self.folder.name}/{link.stage}"
        with self.world.store.build(
            link.kind, link.fingerprint, stage=link.stage, config=config, inputs=inputs, run_id=run_id
        ) as build:
            if build.artifact is not None:
                return build.artifact
            for name, text in files.items():
                (build.out / name).write_text(text)
            return build.publish(summary)


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
def llmexp(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def call(*words: object) -> Said:
        capsys.readouterr()
        code = main([str(word) for word in words])
        found = capsys.readouterr()
        return Said(code, found.out, found.err)

    return call


@pytest.fixture
def look(world: World, llmexp: Callable[..., Said]) -> Callable[..., Said]:
    """Run a verb that looks at what is there, on the world's folder."""
    return lambda *words: llmexp(*words, "--outputs", world.outputs)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``stage=sft`` ran at debug size, on notes and conversations of the folder."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["the", "a", "model", "text", "token", "learns", "writes", "reads", "small", "list", "of", "and"]
    chance = random.Random(0)
    (folder / "notes").mkdir()
    for index in range(60):
        note = " ".join(chance.choices(words, k=chance.randrange(20, 120)))
        (folder / "notes" / f"{index}.txt").write_text(f"{note}.\n")
    with (folder / "chats.jsonl").open("w") as file:
        for _ in range(80):
            question, answer = (" ".join(chance.choices(words, k=k)) for k in (6, 8))
            turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": turns}) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", *TRAINED, "-q"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def inside(
    trained: Path, llmexp: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Run a command in the folder of ``trained``; ``stdin`` is its standard input."""
    monkeypatch.chdir(trained)

    def call(*words: object, stdin: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return llmexp(*words)

    return call
