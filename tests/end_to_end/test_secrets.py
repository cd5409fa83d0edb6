"""The password of a tracking server is nobody's to read: not on the terminal, not in any file."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, run

PASSWORD = "hunter2"
DEAD = {
    "server": f"http://me:{PASSWORD}@127.0.0.1:9",
    "database": f"postgresql://me:{PASSWORD}@127.0.0.1:9/db",
    "short": "postgresql://me:pw7@127.0.0.1:9/db",
}
COLLECT = ["stage=collect", "data=text_files", "data.path=notes", "data.heldout=0.2", "tracking=mlflow"]
COLLECT += ["tracking.close_wait=0", "tracking.linger=0"]


def leaks(folder: Path, text: str, said: str) -> list[str]:
    """Where a text stands among what was said and written."""
    files = [path for path in (folder / "outputs").rglob("*") if path.is_file()]
    found = [str(path) for path in files if text.encode() in path.read_bytes()]
    return found + (["the terminal"] if text in said else [])


@pytest.mark.parametrize("given", ["typed", "environment"])
@pytest.mark.parametrize("kind", list(DEAD))
def test_no_password_of_a_dead_tracking_server_is_printed_or_written(here, monkeypatch, kind, given):
    monkeypatch.setenv("TRACKING", DEAD[kind])
    uri = DEAD[kind] if given == "typed" else "${oc.env:TRACKING}"
    done = run(here, *COLLECT, f"tracking.uri={uri}")
    assert done.returncode == 0, done.stderr
    assert "***@127.0.0.1:9" in done.stdout
    assert "llmexp sync outputs/runs/" in " ".join(done.stdout.split())
    password = DEAD[kind].partition("@")[0].rpartition(":")[2]
    assert leaks(here, password, done.stdout + done.stderr) == []


def test_a_run_that_fails_while_its_server_is_away_says_how_to_deliver_it(here):
    (here / "notes" / "bad.txt").write_bytes(b"\0\1\2\3" * 100)
    done = run(here, *COLLECT, "data.on_bad_file=fail", f"tracking.uri={DEAD['server']}")
    assert done.returncode == 1, done.stderr
    assert "bad.txt" in done.stderr
    assert "llmexp sync " in done.stderr
    assert leaks(here, PASSWORD, done.stdout + done.stderr) == []


def test_no_password_is_printed_or_written_by_a_sweep(here):
    done = run(here, "-m", *COLLECT, f"tracking.uri={DEAD['server']}", "data.heldout=0.2,0.3")
    assert done.returncode == 0, done.stderr
    assert len(list(here.glob("outputs/sweeps/*/*/*/pipeline.json"))) == 2
    assert leaks(here, PASSWORD, done.stdout + done.stderr) == []


@pytest.mark.parametrize(
    "words",
    [
        ["check", *SMALL, "tracking=mlflow", f"tracking.uri=ftp://me:{PASSWORD}@host"],
        ["check", "--json", *SMALL, "tracking=mlflow", f"tracking.uri=ftp://me:{PASSWORD}@host"],
        ["check", *SMALL, f"trainer.max_steps=http://me:{PASSWORD}@host"],
        ["doctor", "tracking=mlflow", f"tracking.uri=http://me:{PASSWORD}@localhost"],
        ["config", "tracking=mlflow", f"tracking.uri=http://me:{PASSWORD}@localhost"],
    ],
)
def test_no_password_is_printed_by_what_only_looks(here, words):
    done = run(here, *words)
    assert done.returncode in (0, 2), done.stderr
    assert "***@" in done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
