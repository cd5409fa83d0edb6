"""Building: once, whole or not at all, and never by two."""

import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import safetensors.numpy

from llmexp.store.artifact import MANIFEST
from llmexp.store.errors import LeaseLost, StoreError, StoreFull
from llmexp.store.store import Store

F = "0123456789abcdef" * 2


def leftovers(store: Store) -> list[str]:
    return [path.name for path in (store.root / "corpus").iterdir() if path.name.startswith(".")]


def test_what_was_published_is_found_with_its_manifest(store, put):
    put(F, inputs={"corpus": "a" * 32, "models": ["b" * 32, "c" * 32]})
    found = store.find("corpus", F)
    assert found.manifest.stage == "collect"
    assert found.manifest.input_fingerprints() == ["a" * 32, "b" * 32, "c" * 32]
    assert found.manifest.bytes == 4
    assert found.file("data.txt").read_bytes() == b"text"


def test_an_artifact_that_exists_is_not_built_again(store, put):
    put(F)
    with store.build("corpus", F, stage="collect", config={}) as build:
        assert build.artifact.fingerprint == F
        with pytest.raises(StoreError, match="exists already"):
            _ = build.out


def test_two_processes_that_want_one_artifact_build_it_once(store, start_builder):
    builders = [start_builder(F, f"run{i}", "--pause", 0.1, "--lease", 10) for i in range(3)]
    words = [builder.communicate(timeout=30)[0].split() for builder in builders]
    assert sorted(words) == [["building", "published"], ["found"], ["found"]]
    assert store.find("corpus", F).damages() == []


def test_who_waits_is_told_who_builds(store, start_builder):
    builder = start_builder(F, "the_run", "--pause", 0.1)
    assert builder.stdout.readline() == "building\n"
    told = []
    with store.build("corpus", F, stage="collect", config={}, on_wait=told.append) as build:
        assert build.artifact.manifest.run_id == "the_run"
    assert told[0].builder["run_id"] == "the_run"
    assert told[0].builder["pid"] == builder.pid


def test_a_wait_ends_when_the_callback_raises(store, start_builder):
    assert start_builder(F, "slow", "--pause", 5).stdout.readline() == "building\n"

    def stop(_waiting):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), store.build("corpus", F, stage="", config={}, on_wait=stop):
        pass


def test_kill_9_at_random_moments_leaves_the_store_valid_and_the_next_build_goes_on(store, start_builder):
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    published = 0
    for attempt in range(12):
        fingerprint = f"{attempt // 4:032x}"
        builder = start_builder(fingerprint, f"run{attempt}", "--pieces", 20, "--pause", 0.002)
        if attempt % 4:
            builder.stdout.readline()  # past the imports: kill it while it writes or publishes
            time.sleep(chance.uniform(0, 0.12))
        else:
            time.sleep(chance.uniform(0, 0.3))
        builder.send_signal(signal.SIGKILL)
        builder.wait()
        assert store.broken() == []
        assert all(artifact.damages() == [] for artifact in store.list())
        published += len(store.list())
    for number in range(3):
        last = start_builder(f"{number:032x}", "last", "--pieces", 20, "--pause", 0)
        assert last.communicate(timeout=30)[0].split()[-1] in ("published", "found")
    assert [artifact.damages() for artifact in store.list()] == [[], [], []]


def test_kill_9_before_each_single_change_leaves_the_store_valid_and_the_next_build_goes_on(
    store, start_builder
):
    for change in range(1, 100):
        fingerprint = f"{change:032x}"
        builder = start_builder(fingerprint, "killed", "--pieces", 2, "--pause", 0, "--die-at", change)
        if builder.wait(timeout=30) == 0:
            break  # it made fewer changes than that
        assert store.broken() == []
        with store.build("corpus", fingerprint, stage="collect", config={}, run_id="next") as build:
            if build.artifact is None:
                (build.out / "data.txt").write_text("next")
                build.publish()
        assert store.verify(store.find("corpus", fingerprint)) == []
        assert leftovers(store) == []
    assert 10 < change < 99


def test_what_a_killed_builder_left_is_removed_by_the_next(store, start_builder):
    builder = start_builder(F, "killed", "--pause", 5)
    assert builder.stdout.readline() == "building\n"
    builder.kill()
    builder.wait()
    assert len(leftovers(store)) == 1
    with store.build("corpus", F, stage="collect", config={}) as build:
        (build.out / "data.txt").write_bytes(b"ours")
        build.publish()
    assert leftovers(store) == []
    assert store.find("corpus", F).names() == ["data.txt"]


def test_a_stopped_builder_does_not_publish_over_its_successor_when_it_wakes(store, start_builder):
    builder = start_builder(F, "stopped", "--pieces", 3, "--pause", 0.1)
    assert builder.stdout.readline() == "building\n"
    builder.send_signal(signal.SIGSTOP)
    with store.build("corpus", F, stage="collect", config={}, run_id="successor") as build:
        (build.out / "data.txt").write_bytes(b"successor")
        build.publish()
    builder.send_signal(signal.SIGCONT)
    assert builder.communicate(timeout=20)[0].split() == ["lost"]
    assert store.find("corpus", F).manifest.run_id == "successor"
    assert store.find("corpus", F).damages() == []
    assert leftovers(store) == []


def test_a_stopped_builder_that_wakes_first_leaves_the_building_to_its_successor(store, start_builder):
    builder = start_builder(F, "stopped", "--pieces", 3, "--pause", 0.1)
    assert builder.stdout.readline() == "building\n"
    builder.send_signal(signal.SIGSTOP)
    with store.build("corpus", F, stage="collect", config={}, run_id="successor") as build:
        builder.send_signal(signal.SIGCONT)
        assert builder.communicate(timeout=20)[0].split() == ["lost"]
        (build.out / "data.txt").write_bytes(b"successor")
        build.publish()
    assert store.find("corpus", F).manifest.run_id == "successor"


def test_a_builder_stopped_just_before_its_rename_cannot_publish_after_its_successor_began(
    store, start_builder
):
    builder = start_builder(F, "stopped", "--stop-at-rename")
    assert os.waitid(os.P_PID, builder.pid, os.WSTOPPED | os.WNOWAIT).si_status == signal.SIGSTOP
    with store.build("corpus", F, stage="collect", config={}, run_id="successor") as build:
        builder.send_signal(signal.SIGCONT)
        assert builder.communicate(timeout=20)[0].split() == ["building", "lost"]
        assert store.find("corpus", F) is None
        (build.out / "data.txt").write_bytes(b"successor")
        build.publish()
    assert store.find("corpus", F).manifest.run_id == "successor"


def test_an_old_epoch_cannot_publish(store):
    with pytest.raises(LeaseLost, match="epoch 2"), store.build("corpus", F, stage="", config={}) as build:
        (build.out / "data.txt").write_bytes(b"old")
        store.lease("corpus", F).claim_epoch({})
        build.publish()
    assert store.find("corpus", F) is None
    assert leftovers(store) == []


def test_a_failure_after_the_folder_was_taken_away_is_told_as_a_lost_lease(store):
    with pytest.raises(LeaseLost), store.build("corpus", F, stage="", config={}) as build:
        store.lease("corpus", F).claim_epoch({})
        store.clear_leftovers("corpus", F)
        (build.out / "data.txt").write_bytes(b"old")


def test_epochs_only_grow(store):
    lease = store.lease("corpus", F)
    assert [lease.claim_epoch({}) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert store.lease("corpus", F).current_epoch() == 5


def test_a_rename_onto_an_existing_artifact_keeps_the_first(store, put):
    with store.build("corpus", F, stage="collect", config={}) as build:
        (build.out / "data.txt").write_bytes(b"second")
        elsewhere = Store([store.root.with_name("elsewhere")])
        first = put(F, content=b"first", to=elsewhere)
        os.rename(first.path, store.root / "corpus" / F)
        assert build.publish().file("data.txt").read_bytes() == b"first"
    assert leftovers(store) == []


def test_a_build_that_fails_leaves_nothing_and_can_be_tried_again(store, put):
    with pytest.raises(ZeroDivisionError), store.build("corpus", F, stage="", config={}) as build:
        (build.out / "data.txt").write_bytes(b"half")
        _ = 1 / 0
    assert leftovers(store) == []
    assert store.find("corpus", F) is None
    assert put(F).fingerprint == F


def test_a_build_that_forgets_to_publish_is_an_error(store):
    with (
        pytest.raises(StoreError, match="without being published"),
        store.build("corpus", F, stage="", config={}),
    ):
        pass


@pytest.mark.parametrize("name", ["two words.txt", "ümlaut.txt", "line\nbreak"])
def test_a_file_name_that_is_not_portable_is_refused(store, name):
    with (
        pytest.raises(ValueError, match="is named with"),
        store.build("corpus", F, stage="", config={}) as build,
    ):
        (build.out / name).write_text("x")
        build.publish()


def test_a_link_in_an_artifact_is_refused(store, tmp_path):
    with pytest.raises(ValueError, match="no links"), store.build("corpus", F, stage="", config={}) as build:
        (build.out / "folder").symlink_to(tmp_path)
        build.publish()


def test_a_stage_may_not_write_the_manifest(store):
    with pytest.raises(ValueError, match=MANIFEST), store.build("corpus", F, stage="", config={}) as build:
        (build.out / MANIFEST).write_text("{}")
        build.publish()


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of one MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_told_with_the_folder_and_the_bytes_and_leaves_nothing(small_disk):
    store = Store([small_disk / "store"])
    with pytest.raises(StoreFull) as told, store.build("corpus", F, stage="", config={}) as build:
        for piece in range(30):
            (build.out / f"{piece}.bin").write_bytes(bytes(100_000))
    written, free = (
        int(figure.replace(",", ""))
        for figure in re.findall(r"([\d,]+) bytes (?:that|were free)", str(told.value))
    )
    assert str(store.root / "corpus") in str(told.value)
    assert 900_000 < written <= 2**20
    assert free < 100_000
    assert leftovers(store) == []
    with store.build("corpus", F, stage="", config={}) as build:
        (build.out / "fits.bin").write_bytes(bytes(500_000))
        build.publish()


def test_a_disk_that_a_library_in_another_language_fills_is_told_so_too(small_disk):
    tensors = {"weight": numpy.zeros(2**20, dtype=numpy.float32)}
    with pytest.raises(StoreFull), Store([small_disk]).build("model", F, stage="", config={}) as build:
        safetensors.numpy.save_file(tensors, build.out / "model.safetensors")


def test_a_disk_that_is_full_from_the_start_is_told_so(small_disk):
    with open(small_disk / "ballast", "wb") as ballast, pytest.raises(OSError, match="No space"):
        ballast.write(bytes(2_000_000))
    with pytest.raises(StoreFull), Store([small_disk / "s"]).build("corpus", F, stage="", config={}):
        pass


def test_a_file_size_limit_is_told_as_no_room(store):
    code = (
        "import sys; from pathlib import Path; from llmexp.store.store import Store\n"
        f"with Store([Path(sys.argv[1])]).build('corpus', {F!r}, stage='', config={{}}) as build:\n"
        "    (build.out / 'big').write_bytes(bytes(300_000))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(store.root)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert "StoreFull" in ended.stderr
    assert str(store.root) in ended.stderr
    assert leftovers(store) == []
