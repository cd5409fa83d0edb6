"""Two commands at once on the same pipeline, and many in the same second."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from commands import SMALL, artifacts, built, kill, must, run, running, runs, stages, start, wait_until


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


def test_two_commands_that_go_on_with_killed_work_do_not_share_its_folder(here):
    process = start(here, *SMALL, "trainer.max_steps=200")
    wait_until(lambda: list(here.glob("outputs/runs/*/*/pretrain/journal.jsonl")), "training")
    kill(process)
    (killed,) = runs(here)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: must(here, *SMALL, "trainer.max_steps=200"), range(2)))
    assert len(runs(here)) == 2
    for folder in runs(here):
        lines = (folder / "journal.jsonl").read_text().splitlines()
        events = [record["event"] for record in map(json.loads, lines) if "event" in record]
        assert events.count("end") == 1
        assert events.count("start") == (2 if folder == killed else 1)


def test_a_folder_that_is_named_belongs_to_one_command_at_a_time(here):
    words = [*SMALL, "trainer.max_steps=2000", "hydra.run.dir=mine"]
    with running(here, *words):
        wait_until(lambda: (here / "mine" / "pipeline.json").is_file(), "the first command")
        second = run(here, *words)
    assert second.returncode == 2
    assert "another command works in" in second.stderr
