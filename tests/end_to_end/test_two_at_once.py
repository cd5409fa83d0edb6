"""Two commands at once on the same pipeline, and many in the same second."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from commands import SMALL, artifacts, built, must, runs, stages


def test_two_commands_at_once_build_each_artifact_once(here):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: must(here, *SMALL), range(2)))
    first, second = (set(built(run)) for run in runs(here))
    assert first.isdisjoint(second)
    assert first | second == set(stages(runs(here)[0]))
    for kind, number in {"corpus": 2, "tokenizer": 1, "shards": 1, "model": 1}.items():
        assert len(artifacts(here, kind)) == number


def test_commands_of_one_second_get_a_run_folder_each(done_once):
    number = len(runs(done_once))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: must(done_once, *SMALL), range(3)))
    folders = runs(done_once)
    assert len(folders) == number + 3
    assert all(json.loads((run / "pipeline.json").read_text())["status"] == "done" for run in folders)
