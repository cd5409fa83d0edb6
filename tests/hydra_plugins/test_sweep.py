"""``-m``: every job is checked before the first, each is a run of its own, a failed one stops no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from hydra_plugins.llmexp_launcher._core import Relay, _best
from llmexp.cli.main import main
from llmexp.stage.runs import find_run


@pytest.fixture
def notes(tmp_path, monkeypatch) -> Path:
    """A folder to work in: folders of texts and of records; those in ``bad`` cannot be read."""
    monkeypatch.chdir(tmp_path)
    for name in ("good", "better"):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(20):
            (folder / f"{number}.txt").write_text(f"a {name} note of the number {number}\n")
    (tmp_path / "fine").mkdir()
    (tmp_path / "fine" / "note.jsonl").write_text("".join(f'{{"text": "note {n}"}}\n' for n in range(40)))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "note.jsonl").write_text("this is no JSON\n" * 10)
    return tmp_path


def sweep(*words: str) -> int:
    return main(["-m", "stage=collect", "data=text_files", "tracking=none", *words])


def jobs() -> list[Path]:
    return sorted(path.parent for path in Path("outputs/sweeps").glob("*/*/*/.hydra"))


@pytest.mark.usefixtures("notes")
def test_each_job_is_a_run_in_a_folder_of_its_own(capfd):
    assert sweep("data.path=good,better", "data.heldout=0.25") == 0
    first, second = jobs()
    assert (first.name, second.name) == ("0", "1")
    lines = OmegaConf.load(second / ".hydra" / "overrides.yaml")
    assert "data.path=better" in lines
    assert "data.heldout=0.25" in lines
    assert OmegaConf.load(second / ".hydra" / "config.yaml").stages.collect.data.path == "better"
    hydra = OmegaConf.load(second / ".hydra" / "hydra.yaml").hydra
    assert (hydra.job.num, hydra.job.id) == (1, "job_1")
    assert (first / "pipeline.json").is_file()
    multirun = OmegaConf.load(first.parent / "multirun.yaml")
    assert "data.path=good,better" in multirun.hydra.overrides.task
    assert "[job 1] done" in capfd.readouterr().err


@pytest.mark.usefixtures("notes")
def test_trained_jobs_end_with_the_figures_that_compare_them(capfd):
    words = ["model=debug", "trainer=debug", "loader.seq_len=16", "data=text_files", "data.path=good"]
    words += ["data.heldout=0.3", "curation=none", "tracking=none"]
    assert main(["-m", *words, "optimizer.lr=1e-6,1e-2"]) == 0
    told = capfd.readouterr().err
    losses = [float(x) for x in re.findall(r"\[job \d\] done  val/loss ([\d.]+)  .*optimizer.lr=", told)]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert re.search(r"best val/loss: \[job 1\] [\d.]+  .*optimizer.lr=(?:0\.01|1e-2)", told)


def test_the_best_job_is_told_for_each_figure_that_several_have():
    nan = float("nan")
    found = {
        0: {"bits_per_byte": nan, "exact_match": 0.9, "ece": 0.1},
        2: {"bits_per_byte": 1.5, "exact_match": 0.95},
        3: {"bits_per_byte": 1.4, "exact_match": nan},
    }
    assert _best(found) == {"bits_per_byte": 3, "exact_match": 2}
    assert _best({0: {"val/loss": 1.0}}) == {}


def test_the_newest_line_of_a_job_is_told_once(tmp_path, capfd):
    log = tmp_path / "job.log"
    log.write_text("composing\npretrain: 3/9 steps\n\n")
    relay = Relay(log, "[job 3]", interval=0)
    relay.look()
    relay.look()
    assert capfd.readouterr().err == "[job 3] pretrain: 3/9 steps\n"


@pytest.mark.usefixtures("notes")
def test_a_job_that_fails_while_it_runs_stops_no_other(capfd):
    assert main(["-m", "stage=collect", "data=jsonl", "tracking=none", "data.path=bad,fine"]) == 1
    told = capfd.readouterr().err
    assert "[job 0] FAILED: exit code 1; see" in told
    assert "[job 1] done" in told
    log = next(Path("outputs/sweeps").glob("*/*/0/job.log")).read_text()
    assert "Traceback (most recent call last)" in log


@pytest.mark.usefixtures("notes")
def test_a_limit_of_failures_ends_the_sweep(capfd):
    words = [
        "-m",
        "stage=collect",
        "data=jsonl",
        "tracking=none",
        "data.path=bad",
        "data.heldout=0.1,0.2,0.3",
    ]
    assert main([*words, "sweep.max_failed=1"]) == 1
    assert "sweep stopped: 1 jobs failed" in capfd.readouterr().err
    assert len(list(Path("outputs/sweeps").glob("*/*/*/job.log"))) == 1


@pytest.mark.usefixtures("notes")
def test_a_mistake_in_any_job_stops_before_the_first(capfd):
    assert sweep("data.path=good,better,no_such") == 2
    told = capfd.readouterr().err
    assert "collect.data.path: no_such does not exist" in told
    assert "job 2 (" in told
    assert jobs() == []


@pytest.mark.usefixtures("notes")
def test_the_mistakes_of_all_jobs_are_told_together(capfd):
    assert sweep("data.path=good,no_such", "data.heldout=2,0.1") == 2
    told = capfd.readouterr().err
    for part in ("job 0 (", "job 2 (", "job 3 (", "2.0 is out of range", "no_such does not exist"):
        assert part in told
    assert "job 1 (" not in told


@pytest.mark.usefixtures("notes")
def test_named_lines_and_groups_are_swept_as_one_dimension_each():
    assert sweep("collect.data.path=good,better", "collect.data=text_files", "launcher=local") == 0
    assert len(jobs()) == 2


@pytest.mark.usefixtures("notes")
def test_the_sweeps_folder_can_be_given():
    assert (
        sweep(
            "data.path=good,better",
            "hydra.sweep.dir=all",
            "hydra.sweep.subdir=n${hydra.job.num}",
        )
        == 0
    )
    assert sorted(path.name for path in Path("all").iterdir() if path.is_dir()) == ["n0", "n1"]


@pytest.mark.usefixtures("notes")
def test_a_persons_own_tree_reaches_the_jobs(tmp_path):
    option = tmp_path / "tree" / "data" / "mine.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("_target_: llmexp.corpus.config.TextFilesSpec\n")
    words = ["-m", "stage=collect", "data=mine", "data.path=good", "tracking=none", "--config-dir", "tree"]
    assert main([*words, "data.heldout=0.1,0.2"]) == 0
    assert len(jobs()) == 2


def test_a_reader_that_leaves_stops_no_sweep(notes):
    words = ["-m", "stage=collect", "data=text_files", "tracking=none", "data.path=good,better"]
    command = [sys.executable, "-m", "llmexp", *words]
    with subprocess.Popen(command, cwd=notes, stderr=subprocess.PIPE) as process:
        process.stderr.close()
    assert process.returncode == 0
    assert len(jobs()) == 2


@pytest.mark.usefixtures("notes")
def test_the_last_run_is_the_last_job_of_a_sweep():
    assert sweep("data.path=good,better", "data.heldout=0.25") == 0
    assert find_run("last", Path("outputs/runs")) == jobs()[1]
    assert main(["show", "last"]) == 0


@pytest.mark.usefixtures("notes")
def test_the_whole_trace_changes_no_exit_code(capfd):
    assert main(["check", "optimizer.lrr=1", "--traceback"]) == 2
    told = capfd.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert "optimizer.lr" in told
