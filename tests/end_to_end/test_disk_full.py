"""A disk that is full: a clear message, a valid store, and the same command goes on once there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import SMALL, must, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB that can be made fuller and emptier."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leave: int) -> None:
    """Take all room but ``leave`` bytes."""
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(b"\0" * (room.f_bavail * room.f_frsize - leave))


WORDS = [*(word for word in SMALL if word != "tracking=jsonl"), "tracking=none"]


@pytest.mark.parametrize("stage", ["collect", "tokens", "pretrain"])
def test_a_full_disk_is_told_and_the_command_goes_on_when_there_is_room(here, disk, stage):
    words = [*WORDS, "paths.outputs=disk/outputs", "trainer.checkpoint_every=2"]
    data = [word for word in words if word.startswith(("data", "tracking", "paths"))]
    if stage == "tokens":
        must(here, *data, "stage=curate")
    if stage == "pretrain":
        must(here, *data, "stage=tokenize", "tokenizer.vocab_size=300")
    fill(disk, leave={"collect": 4096, "tokens": 60_000, "pretrain": 120_000}[stage])
    done = run(here, *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert run(here, "store", "verify", "--outputs", "disk/outputs").returncode == 0
    (disk / "ballast").unlink()
    done = must(here, *words)
    assert run(here, "store", "verify", "--outputs", "disk/outputs").returncode == 0


def test_a_disk_that_takes_nothing_is_told_with_what_names_the_folder(here, disk):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = run(here, *WORDS, "paths.outputs=disk/outputs")
    assert done.returncode == 2
    assert f"paths.outputs=disk/outputs: {disk} may not be written to" in done.stderr
    assert "--traceback" not in done.stderr
