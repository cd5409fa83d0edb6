"""Ctrl-C and SIGTERM: stop at a safe point, say how to go on, exit 130; twice stops at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from commands import SMALL, must, nothing_is_left, run, running, runs, stages, training_goes_on, wait_until

LONG = [*SMALL, "trainer.max_steps=400", "trainer.checkpoint_every=100", "trainer.val_every=null"]


def press_ctrl_c(process: subprocess.Popen[str]) -> None:
    """What a terminal does: SIGINT to the whole group."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process: subprocess.Popen[str]) -> None:
    """What a scheduler does: SIGTERM to the command."""
    process.terminate()


def stop_in_training(folder: Path, send, words: list[str] = LONG) -> tuple[int, str]:
    """Start the command, stop it while it trains; exit code and what it said."""
    goes_on = training_goes_on(folder)
    with running(folder, *words) as process:
        wait_until(lambda: process.poll() is not None or goes_on(), "training")
        send(process)
        out, err = process.communicate(timeout=60)
    return process.returncode, out + err


@pytest.fixture(scope="module")
def undisturbed(done_once: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What training comes to when nobody stops it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(done_once, folder, dirs_exist_ok=True)
    must(folder, *LONG)
    return summary(runs(folder)[-1])


def summary(folder: Path) -> dict[str, Any]:
    """What the pretraining of a run came to."""
    manifest = Path(stages(folder)["pretrain"]["path"], "manifest.json")
    found: dict[str, Any] = json.loads(manifest.read_text())["summary"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("send", [press_ctrl_c, terminate])
def test_a_stopped_training_saves_says_so_and_goes_on_in_the_same_folder(again, send, undisturbed):
    before = set(runs(again))
    code, said = stop_in_training(again, send)
    assert code == 130, said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    (folder,) = set(runs(again)) - before
    record = json.loads((folder / "pipeline.json").read_text())
    assert record["status"] == "interrupted"
    assert stages(folder)["pretrain"]["status"] == "interrupted"
    assert list((folder / "pretrain" / "checkpoints").glob("step-*"))
    nothing_is_left(again)
    must(again, *LONG)
    assert set(runs(again)) - before == {folder}
    assert stages(folder)["pretrain"]["status"] == "done"
    assert resumed_from(folder) > 0
    assert summary(folder)["steps"] == 400
    assert summary(folder)["weights_hash"] == undisturbed["weights_hash"]


def resumed_from(folder: Path) -> int:
    """The step that the last incarnation of pretraining began at."""
    events = [json.loads(line) for line in (folder / "pretrain" / "journal.jsonl").read_text().splitlines()]
    found = [e["fields"] for e in events if e.get("event") == "resume"]
    assert found, "no resume event"
    return int(found[-1]["step"])


def test_a_second_ctrl_c_stops_at_once(again):
    goes_on = training_goes_on(again, 2)
    with running(again, *LONG, "trainer.max_steps=100000") as process:
        wait_until(lambda: process.poll() is not None or goes_on(), "training")
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)  # two signals at once would be one
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    nothing_is_left(again)


@pytest.mark.parametrize("stage", ["curate", "tokens"])
def test_ctrl_c_while_workers_work_leaves_no_process_and_no_traceback(here, stage):
    for index in range(60, 3000):
        (here / "notes" / f"{index}.txt").write_text(
            f"The note {index} that we have is of the other kind. " * 40
        )
    words = [*SMALL, "curate.workers=2", "tokens.workers=2"]
    with running(here, *words) as process:
        wait_until(
            lambda: process.poll() is not None or list(here.glob(f"outputs/runs/*/*/{stage}/run.json")), stage
        )
        time.sleep(0.5 if stage == "curate" else 0.05)
        press_ctrl_c(process)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    nothing_is_left(here)
    assert run(here, "store", "verify").returncode == 0


def test_a_sweep_that_is_told_to_stop_stops_its_job_and_begins_no_other(again):
    def training() -> bool:
        journals = list(again.glob("outputs/sweeps/*/*/0/pretrain/journal.jsonl"))
        return any(journal.read_bytes().count(b'"train/loss"') >= 20 for journal in journals)

    endless = [*SMALL, "trainer.max_steps=100000", "trainer.val_every=null", "trainer.checkpoint_every=100"]
    with running(again, "-m", *endless, "optimizer.lr=1e-3,2e-3") as process:
        wait_until(lambda: process.poll() is not None or training(), "training")
        terminate(process)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "jobs not begun: 1" in err
    nothing_is_left(again)
    assert list(again.glob("outputs/sweeps/*/*/0/pretrain/checkpoints/step-*"))
    assert not list(again.glob("outputs/sweeps/*/*/1"))


def test_a_reader_that_leaves_ends_no_training(again):
    words = [*SMALL, "optimizer.lr=3e-3", "trainer.max_steps=300"]
    with running(again, *words) as process:
        process.stdout.close()
        process.stderr.close()
        assert process.wait(timeout=120) == 0
    assert stages(runs(again)[-1])["pretrain"]["status"] == "done"


@pytest.mark.slow
def test_outputs_that_were_copied_go_on_with_their_own_run(again):
    code, said = stop_in_training(again, press_ctrl_c)
    assert code == 130, said
    copied = again.with_name(again.name + "-copied")
    shutil.copytree(again, copied, symlinks=True)
    original = runs(again)[-1] / "pretrain" / "journal.jsonl"
    written = original.read_bytes()
    must(copied, *LONG)
    assert original.read_bytes() == written
    assert [run.name for run in runs(copied)] == [run.name for run in runs(again)]
    events = (runs(copied)[-1] / "pretrain" / "journal.jsonl").read_text()
    assert '"event":"resume"' in events
