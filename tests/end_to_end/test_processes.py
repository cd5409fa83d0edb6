"""``launcher=processes``: several ranks are one run, and their end is the command's end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
from commands import SMALL, kill, left_behind, must, nothing_is_left, run, running, runs, stages, wait_until

from llmexp.config.mistakes import UserError
from llmexp.launch import executors
from llmexp.launch.rank import _ranks_met, tell_failure
from llmexp.store.machine import cores
from llmexp.track.progress import Interrupted, Progress
from llmexp.track.runs import read_metrics

TWO = ["launcher=processes", "launcher.gpus_per_node=2", "parallel=ddp", "parallel.dp_replicate=2"]
MORE = ["optimizer.lr=2e-3", "trainer.max_steps=12"]
"""Another training than the one that is in the store."""
ENDLESS = [*SMALL, *TWO, "trainer.max_steps=100000", "trainer.checkpoint_every=10", "trainer.val_every=null"]

pytestmark = pytest.mark.slow


def train_losses(run_dir: Path) -> dict[int, float]:
    series = read_metrics(run_dir / "pretrain")["train/loss"]
    return dict(zip(series.steps, series.values, strict=True))


@pytest.fixture(scope="module")
def both(done_once: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(folder where one process trained, folder where two did)."""
    import shutil

    one, two = (tmp_path_factory.mktemp(name) / "x" for name in ("one", "two"))
    for folder, words in ((one, []), (two, [*TWO, "tracking=mlflow"])):
        shutil.copytree(done_once, folder)
        shutil.rmtree(folder / "outputs" / "runs")
        must(folder, *SMALL, *MORE, *words)
    return one, two


def test_two_processes_lose_what_one_loses(both):
    one, two = (train_losses(runs(folder)[0]) for folder in both)
    assert sorted(one) == list(range(1, 13))
    assert two == pytest.approx(one, abs=1e-5)


def test_two_processes_share_the_held_out_text_and_measure_what_one_measures(both):
    one, two = (read_metrics(runs(folder)[0] / "pretrain") for folder in both)
    for name in ("val/loss", "val/bits_per_byte"):
        assert one[name].values
        assert two[name].values == pytest.approx(one[name].values, abs=1e-5)


def test_two_ranks_are_one_run_folder_and_one_mlflow_run(both):
    (folder,) = runs(both[1])
    assert len(list((both[1] / "outputs").glob("runs/*/*"))) == 1
    with sqlite3.connect(both[1] / "outputs" / "mlflow.db") as mlflow:
        rows = mlflow.execute("SELECT run_uuid, status FROM runs").fetchall()
        steps = mlflow.execute("SELECT run_uuid, step FROM metrics WHERE key = 'train/loss'").fetchall()
    mlflow.close()
    assert len(rows) == 2, "the pipeline's and the stage's"
    assert {status for _, status in rows} == {"FINISHED"}
    assert sorted(step for _, step in steps) == list(range(1, 13))
    assert folder.is_dir()


def ranks(folder: Path, module: str = "llmexp.launch.rank") -> dict[int, psutil.Process]:
    """Living ranks of commands that run in ``folder``."""
    found = {}
    for process in left_behind(folder):
        try:
            if module in process.cmdline():
                found[int(process.environ()["RANK"])] = process
        except psutil.Error:
            continue
    return found


def trained(folder: Path, steps: int) -> bool:
    """Whether the newest training has taken so many steps."""
    journals = sorted(folder.glob("outputs/runs/*/*/pretrain/journal.jsonl"), key=os.path.getmtime)
    return bool(journals) and journals[-1].read_bytes().count(b'"train/loss"') >= steps


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_command_and_the_next_goes_on(again, victim):
    before = set(runs(again))
    with running(again, *ENDLESS) as process:
        wait_until(
            lambda: process.poll() is not None or (set(runs(again)) - before and trained(again, 30)), "ranks"
        )
        ranks(again)[victim].send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert f"rank {victim}" in err
    assert "SIGKILL" in err
    nothing_is_left(again)
    (folder,) = set(runs(again)) - before
    assert stages(folder)["pretrain"]["status"] == "failed"
    done = stop_soon(again)
    assert set(runs(again)) - before == {folder}, done
    events = [json.loads(line) for line in (folder / "pretrain" / "journal.jsonl").read_text().splitlines()]
    resumed = [event["fields"]["step"] for event in events if event.get("event") == "resume"]
    assert resumed
    assert resumed[-1] >= 10


def stop_soon(folder: Path) -> str:
    """Start the endless training again and end it by Ctrl-C once it goes on."""
    with running(folder, *ENDLESS) as process:
        wait_until(lambda: process.poll() is not None or trained(folder, 60), "training to go on")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    nothing_is_left(folder)
    return out + err


def test_ranks_end_by_themselves_when_the_command_is_killed(again):
    before = set(runs(again))
    with running(again, *ENDLESS) as process:
        wait_until(
            lambda: process.poll() is not None or (set(runs(again)) - before and trained(again, 10)), "ranks"
        )
        assert len(ranks(again)) == 2
        kill(process)
        nothing_is_left(again, seconds=15)


IMPATIENT = """
import sys
from llmexp.cli.main import main
from llmexp.launch import executors
executors.GRACE = 0.5
sys.exit(main())
"""
"""The command with little patience for ranks that outlast another."""


def test_a_stop_waits_for_a_long_step_and_saves(again):
    before = set(runs(again))
    with running(again, *ENDLESS, program=("-c", IMPATIENT)) as process:
        wait_until(lambda: process.poll() is not None or trained(again, 10), "ranks")
        slow = ranks(again)[1]
        slow.suspend()
        process.send_signal(signal.SIGINT)
        time.sleep(3)
        slow.resume()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    (folder,) = set(runs(again)) - before
    stopped = json.loads((folder / "pretrain" / "events.jsonl").read_text().splitlines()[-2])
    assert stopped["message"].startswith("stopped after step"), stopped
    assert "saved as" in stopped["message"]
    nothing_is_left(again)


def test_a_second_ctrl_c_ends_ranks_in_a_long_step_at_once(again):
    with running(again, *ENDLESS) as process:
        wait_until(lambda: process.poll() is not None or trained(again, 10), "ranks")
        ranks(again)[1].suspend()
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert process.returncode == 130, out + err
    assert "at once" in err
    nothing_is_left(again)


def test_a_rank_that_outlasts_a_stopped_one_is_ended_and_nothing_is_lost(monkeypatch, tmp_path):
    monkeypatch.setattr(executors, "GRACE", 0.5)
    codes = ["import sys; sys.exit(130)", "import time; time.sleep(100)"]
    processes = [subprocess.Popen([sys.executable, "-c", code]) for code in codes]
    try:
        with pytest.raises(Interrupted):
            executors._watch(processes, tmp_path, Progress(quiet=True), lambda: False, lambda: None)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_proof_trains_with_as_many_threads_as_the_launcher(again, monkeypatch):
    monkeypatch.setattr("commands.THREADS", {})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = {}
    for module, words in {
        "llmexp.launch.rank": ENDLESS,
        "llmexp.prove.child": ["prove", "resume", *SMALL, *TWO],
    }.items():
        with running(again, *words) as process:
            wait_until(lambda m=module, p=process: p.poll() is not None or len(ranks(again, m)) == 2, module)
            both = list(ranks(again, module).values())
            found[module] = {rank.environ().get("OMP_NUM_THREADS") for rank in both}
            for rank in both:
                rank.kill()
            process.communicate(timeout=60)
    assert found["llmexp.prove.child"] == found["llmexp.launch.rank"] == {str(max(1, cores() // 2))}


def test_a_rank_that_begins_after_the_command_was_killed_ends_too_and_leaves_no_password(again):
    one = ["launcher=processes", "launcher.gpus_per_node=1", "trainer.max_steps=100000"]
    tracked = ["tracking=mlflow", "tracking.uri=http://me:hunter2@127.0.0.1:9", "tracking.linger=0"]
    with running(again, *SMALL, *one, *tracked) as process:
        wait_until(lambda: process.poll() is not None or ranks(again), "the rank", poll=0.001)
        os.kill(process.pid, signal.SIGKILL)
        nothing_is_left(again, seconds=60)
        process.communicate()
    files = [path for path in (again / "outputs").rglob("*") if path.is_file()]
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


def test_a_rank_that_waits_for_one_that_never_begins_ends_with_the_command(again):
    with running(again, *ENDLESS) as process:
        wait_until(lambda: process.poll() is not None or len(ranks(again)) == 2, "ranks", poll=0.001)
        process.send_signal(signal.SIGSTOP)
        ranks(again)[1].kill()
        os.kill(process.pid, signal.SIGKILL)
        nothing_is_left(again, seconds=30)
        process.communicate()


def test_whether_ranks_have_met_is_asked_while_the_module_is_loading(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed", ModuleType("torch.distributed"))
    assert not _ranks_met()


def test_a_mistake_that_a_rank_finds_ends_the_command_as_a_mistake(again):
    done = run(again, *SMALL, *TWO, "trainer.max_steps=13", "trainer.resume=notes")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_a_mesh_that_does_not_fit_the_launcher_is_a_mistake(done_once):
    done = run(done_once, *SMALL, *TWO, "parallel.dp_replicate=3", "trainer.global_batch=6")
    assert done.returncode == 2
    assert "dp_replicate" in done.stderr


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("error, code", [(ValueError, 1), (UserError, 2)])
def test_what_a_rank_says_of_its_end_has_no_secret(capsys, number, error, code):
    with pytest.raises(error) as raised:
        raise error("cannot read s3cr3t-value")
    job = SimpleNamespace(secrets=frozenset({"s3cr3t-value"}))
    assert tell_failure(job, raised.value, number) == code
    said = capsys.readouterr().err
    assert "cannot read ***" in said
    assert "s3cr3t-value" not in said
    assert ("Traceback" in said) == (number == 1 and code == 1)
