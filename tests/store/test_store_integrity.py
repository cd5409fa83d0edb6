"""Damage is noticed and named; discarding and pruning never take what is needed."""

import json
import os
import random
import shutil

import pytest

from llmexp.store.artifact import MANIFEST, Artifact
from llmexp.store.errors import Ambiguous, Damaged, NoArtifact
from llmexp.store.prune import prune
from llmexp.store.store import Store

A, B, C, D = (letter * 32 for letter in "abcd")


def flip_a_bit(path, seed=0):
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(5))
def test_a_flipped_bit_is_noticed_on_read_and_named(put, seed):
    artifact = put(A, content=b"some text " * 100)
    flip_a_bit(artifact.path / "data.txt", seed)
    with pytest.raises(Damaged, match=rf"corpus/{A} .*data\.txt .*llmexp store verify {A} --rebuild") as told:
        artifact.file("data.txt")
    assert told.value.file == "data.txt"


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_in_the_manifest_is_noticed(store, put, seed):
    artifact = put(A)
    before = json.loads((artifact.path / MANIFEST).read_bytes())
    flip_a_bit(artifact.path / MANIFEST, seed)
    try:
        same = json.loads((artifact.path / MANIFEST).read_bytes()) == before
    except ValueError:
        same = False
    if same:  # the bit was in white space
        assert store.find("corpus", A).manifest == artifact.manifest
    else:
        with pytest.raises(Damaged, match=MANIFEST):
            store.find("corpus", A)


def test_damage_after_the_first_read_is_noticed_too(put):
    artifact = put(A)
    artifact.file("data.txt")
    (artifact.path / "data.txt").write_bytes(b"tex?")
    os.utime(artifact.path / "data.txt", ns=(0, 0))
    with pytest.raises(Damaged, match="SHA-256"):
        artifact.file("data.txt")


def test_a_missing_and_a_cut_file_are_named(put):
    artifact = put(A)
    (artifact.path / "data.txt").write_bytes(b"t")
    with pytest.raises(Damaged, match="1 bytes instead of 4"):
        artifact.folder()
    (artifact.path / "data.txt").unlink()
    with pytest.raises(Damaged, match="is missing"):
        artifact.folder()


def test_a_name_that_the_artifact_never_had_is_another_error_than_damage(put):
    with pytest.raises(KeyError, match=r"no file 'date\.txt'; it has data\.txt"):
        put(A).file("date.txt")


def test_verify_lists_all_damage_and_files_that_do_not_belong(store):
    with store.build("corpus", A, stage="", config={}) as build:
        for name in ("one", "two", "three"):
            (build.out / name).write_text(name)
        artifact = build.publish()
    (artifact.path / "one").unlink()
    (artifact.path / "two").write_text("owt")
    (artifact.path / "guest").write_text("")
    assert [damage.file for damage in store.verify(artifact)] == ["one", "two", "guest"]


def test_a_damaged_artifact_is_set_aside_and_built_again(store, put):
    artifact = put(A)
    flip_a_bit(artifact.path / "data.txt")
    aside = store.discard(artifact)
    assert aside.is_dir()
    assert store.find("corpus", A) is None
    assert put(A).damages() == []


def test_an_artifact_with_a_broken_manifest_is_listed_as_broken_and_can_be_discarded(store, put):
    (put(A).path / MANIFEST).write_text("{")
    put(B)
    assert [found.fingerprint for found in store.list()] == [B]
    (broken,) = store.broken()
    store.discard(broken)
    assert store.broken() == []
    assert put(A).fingerprint == A


def test_a_damaged_artifact_of_a_read_only_root_is_overlooked_once_discarded(tmp_path, put):
    team = Store([tmp_path / "team"])
    put(A, to=team)
    ours = Store([tmp_path / "ours", tmp_path / "team"])
    ours.discard(ours.find("corpus", A))
    assert ours.find("corpus", A) is None
    put(A, to=ours, content=b"ours")
    assert ours.find("corpus", A).file("data.txt").read_bytes() == b"ours"
    assert team.find("corpus", A) is not None


def test_what_a_read_only_root_has_is_not_built(tmp_path, put):
    put(A, to=Store([tmp_path / "team"]))
    ours = Store([tmp_path / "ours", tmp_path / "team"])
    with ours.build("corpus", A, stage="", config={}) as build:
        assert build.artifact.path == tmp_path / "team" / "corpus" / A
    assert not (tmp_path / "ours").exists()


def test_a_reference_is_a_fingerprint_its_start_or_a_folder(store, put):
    artifact = put("ab" + "0" * 30)
    for reference in (artifact.fingerprint, "ab", "ab00", str(artifact.path)):
        assert store.resolve(reference).path == artifact.path


def test_an_ambiguous_start_lists_the_candidates(store, put):
    put("ab" + "0" * 30)
    put("ab" + "1" * 30, kind="model")
    with pytest.raises(Ambiguous) as told:
        store.resolve("ab")
    assert told.value.candidates == [f"corpus/ab{'0' * 30}", f"model/ab{'1' * 30}"]
    assert store.find("corpus", "ab").kind == "corpus"


@pytest.mark.parametrize("reference", ["ff", "nonsense", "", "../x"])
def test_a_reference_to_nothing_is_told(store, put, reference):
    put(A)
    with pytest.raises(NoArtifact):
        store.resolve(reference)


def test_prune_keeps_what_kept_artifacts_depend_on(store, put):
    put(A)
    put(B, inputs={"corpus": A})
    put(C, inputs={"models": [B]})
    put(D)
    result = prune(store, {C})
    assert [removal.path.name for removal in result.removed] == [D]
    assert {artifact.fingerprint for artifact in store.list()} == {A, B, C}


def test_a_dry_run_tells_the_same_and_removes_nothing(store, put):
    put(A, content=bytes(5000))
    told = prune(store, set(), dry_run=True)
    assert store.find("corpus", A) is not None
    done = prune(store, set())
    assert told == done
    assert told.bytes > 5000
    assert store.list() == []


def test_prune_never_touches_read_only_roots(tmp_path, put):
    put(A, to=Store([tmp_path / "team"]))
    ours = Store([tmp_path / "ours", tmp_path / "team"])
    put(B, to=ours)
    assert [removal.path.name for removal in prune(ours, set()).removed] == [B]
    assert ours.find("corpus", A) is not None


def test_prune_leaves_an_artifact_whose_lease_is_held(store, put):
    put(A)
    lease = store.lease("corpus", A)
    assert lease.try_acquire()
    try:
        result = prune(store, set())
    finally:
        lease.release()
    assert store.find("corpus", A) is not None
    assert result.removed == []


def test_prune_keeps_the_inputs_and_the_folder_of_a_build_in_progress(store, put):
    put(A)
    with store.build("shards", B, stage="tokenize", config={}, inputs={"corpus": A}) as build:
        assert prune(store, set()).removed == []
        (build.out / "data").write_text("x")
        build.publish()
    assert store.find("corpus", A) is not None


def test_prune_removes_leftovers_of_killed_builders_and_discarded_artifacts(store, put, start_builder):
    builder = start_builder(A, "killed", "--pause", 5)
    assert builder.stdout.readline() == "building\n"
    builder.kill()
    builder.wait()
    store.discard(put(B))
    assert {removal.what for removal in prune(store, set()).removed} == {"leftover", "discarded"}
    assert [*(store.root / "corpus").iterdir()] == []
    assert [*(store.root / ".discarded").iterdir()] == []


def test_prune_refuses_when_a_kept_manifest_is_broken(store, put):
    put(A)
    (put(B, inputs={"corpus": A}).path / MANIFEST).write_text("")
    with pytest.raises(Damaged):
        prune(store, {B})
    assert (store.root / "corpus" / A).is_dir()


def test_an_artifact_loads_from_wherever_its_folder_was_copied(store, put, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(put(A).path, copy)
    assert Artifact.load(copy).fingerprint == A
    assert store.resolve(str(copy)).damages() == []


def test_pruning_a_folder_that_is_no_store_removes_nothing(tmp_path):
    """As when ``outputs`` is given for ``outputs/store``."""
    for folder in ("runs/2026-01-31/12-00-00-mine", "mlartifacts/1", f"store/model/{A}", f"mlruns/{B}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("precious")
    assert prune(Store([tmp_path]), keep=()).removed == []
    assert len([path for path in tmp_path.rglob("file") if path.read_text() == "precious"]) == 4
