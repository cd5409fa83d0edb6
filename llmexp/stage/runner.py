"""Runs a pipeline: what is in the store is linked, the rest is built once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.config.spec import as_data
from llmexp.stage.context import External
from llmexp.stage.graph import Composition, Node
from llmexp.stage.job import StageJob
from llmexp.stage.locate import check_given, check_unchanged, input_fingerprints
from llmexp.stage.runs import PIPELINE, PipelineRecord, StageLink, Unfinished, run_name
from llmexp.store.artifact import Artifact
from llmexp.store.build import Build, Waiting
from llmexp.store.store import Store
from llmexp.track.masking import hidden, mask_of, masked
from llmexp.track.progress import Interrupted, Progress
from llmexp.track.runs import write_json
from llmexp.track.tracker import Tracker

Execute = Callable[..., dict[str, Any]]
"""``execute(job, progress=, should_stop=, guard=, parent=)`` runs a stage; it returns the summary."""


def new_record(composition: Composition, command: str, run_dir: Path) -> PipelineRecord:
    """The record of a pipeline that is about to run, or to go on, in ``run_dir``."""
    earlier = PipelineRecord.read(run_dir).stages if (run_dir / PIPELINE).is_file() else {}
    stages = {
        node.name: StageLink(
            stage=node.kind,
            kind=node.spec.makes,
            fingerprint=node.fingerprint,
            needs=dict(node.needs),
            seconds=earlier[node.name].seconds if node.name in earlier else None,
        )
        for node in composition.nodes.values()
    }
    mask = mask_of(composition.secrets)
    return PipelineRecord(
        title=composition.title,
        command=mask(command),
        created=time.time(),
        overrides=masked(composition.overrides, mask),
        stages=stages,
    )


@dataclass(kw_only=True)
class Runner:
    """One execution of a pipeline in its run folder."""

    composition: Composition
    store: Store
    run_dir: Path
    record: PipelineRecord
    tracker: Tracker
    progress: Progress
    execute: Execute
    should_stop: Callable[[], bool]

    def run(self) -> dict[str, Artifact]:
        """Run every stage; returns the artifacts by stage name.

        Raises:
            Interrupted: a person or the system asked to stop; the same command goes on.
        """
        artifacts: dict[str, Artifact] = {}
        start = time.monotonic()
        try:
            for index, node in enumerate(self.composition.nodes.values()):
                if self.should_stop():
                    raise Interrupted("stopped between two stages")
                with self.progress.stage(node.name, index, len(self.composition.nodes)):
                    artifacts[node.name] = self._stage(node, artifacts)
        except BaseException as error:
            self.record.status = _status(error)
            raise
        else:
            self.record.status = "done"
        finally:
            self.record.seconds = time.monotonic() - start
            self.record.write(self.run_dir)
        return artifacts

    def _stage(self, node: Node, artifacts: dict[str, Artifact]) -> Artifact:
        link = self.record.stages[node.name]
        found = self.store.find(node.spec.makes, node.fingerprint)
        if found is None:
            found = self._build(node, artifacts, link)
        else:
            found.check_sizes()  # a run that is all found would else call a model ready that is cut short
            own = self.run_dir / node.name
            link.cached = found.manifest.run_id != run_name(own, self.composition.root.paths.runs)
            if not link.cached:
                link.run_dir = str(own)  # made by this run, before it was interrupted
            self.progress.line(f"  found in the store: {found.kind} {found.fingerprint[:12]}")
        link.status, link.path = "done", str(found.path)
        self.record.write(self.run_dir)
        return found

    def _build(self, node: Node, artifacts: dict[str, Artifact], link: StageLink) -> Artifact:
        marks = Unfinished(self.store.root)
        config = hidden(as_data(node.spec), node.secret_paths)
        with self.store.build(
            node.spec.makes,
            node.fingerprint,
            stage=node.kind,
            config=masked(config, mask_of(self.composition.secrets)),
            inputs=input_fingerprints(node, self.composition),
            on_wait=self._waiting,
        ) as build:
            if build.artifact is None:
                run_dir = marks.get(node.fingerprint) or self.run_dir / node.name
                run_dir.mkdir(parents=True, exist_ok=True)
                link.status, link.run_dir = "running", str(run_dir)
                self.record.write(self.run_dir)
                marks.put(node.fingerprint, run_dir)
                build.made_by(run_name(run_dir, self.composition.root.paths.runs))
                self._fill(node, artifacts, link, build, run_dir)
                marks.done(node.fingerprint)
            else:
                link.cached = True
        assert build.artifact is not None
        return build.artifact

    def _fill(
        self, node: Node, artifacts: dict[str, Artifact], link: StageLink, build: Build, run_dir: Path
    ) -> None:
        start = time.monotonic()
        job = StageJob(
            name=node.name,
            kind=node.kind,
            spec=node.spec,
            root=self.composition.root,
            inputs=node.inputs(artifacts),
            output=External(node.spec.makes, node.fingerprint, build.out.parent / node.fingerprint),
            out=build.out,
            run_dir=run_dir,
            pipeline_dir=self.run_dir,
            secrets=self.composition.secrets,
            secret_paths=node.secret_paths,
        )
        try:
            check_given(node, self.store)
            summary = self.execute(
                job,
                progress=self.progress,
                should_stop=self.should_stop,
                guard=build.guard,
                parent=self.tracker,
            )
            check_unchanged(node, self.store)
            artifact = build.publish(summary)
        except BaseException as error:
            link.status = _status(error)
            link.error = mask_of(self.composition.secrets)(f"{type(error).__name__}: {error}")
            raise
        finally:
            link.seconds = time.monotonic() - start
        write_json(
            run_dir / "artifact.json",
            {"kind": artifact.kind, "fingerprint": artifact.fingerprint, "path": str(artifact.path)},
        )

    def _waiting(self, waiting: Waiting) -> None:
        if self.should_stop():
            raise Interrupted("stopped while another process builds")
        if int(waiting.seconds) % 10 == 0:
            pid, host = (waiting.builder.get(key, "?") for key in ("pid", "host"))
            self.progress.line(
                f"  waiting for {waiting.kind} {waiting.fingerprint[:12]}, which process {pid} on {host} "
                f"builds ({waiting.seconds:.0f} s)"
            )


def _status(error: BaseException) -> str:
    return "interrupted" if isinstance(error, (Interrupted, KeyboardInterrupt, SystemExit)) else "failed"
