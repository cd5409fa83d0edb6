"""A checkpoint is whole or not there, and free of pickle."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from llmexp.train.checkpoint import Checkpoints, read_checkpoint
from llmexp.train.errors import BrokenCheckpoint

TENSORS = {
    "model": {"w": torch.arange(64.0)},
    "optimizer": {"w/exp_avg": torch.ones(64), "w/step": torch.tensor(3.0)},
}


def save(folder, step, keep=9):
    return Checkpoints(folder, keep=keep).save(step, TENSORS, {"position": {"step": step}})


def test_what_is_saved_is_read_back(tmp_path):
    found = read_checkpoint(save(tmp_path, 100))
    assert found.path.name == "step-00000100"
    assert found.step == 100
    assert found.state == {"position": {"step": 100}}
    for group, tensors in TENSORS.items():
        loaded = found.tensors(group)
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_distributed_s_hugging_face_storage_reads_the_tensors(tmp_path):
    import torch.distributed.checkpoint as dcp

    path = save(tmp_path, 1)
    wanted = {"w": torch.zeros(64)}
    dcp.load(wanted, storage_reader=dcp.HuggingFaceStorageReader(str(path)), no_dist=True)
    assert torch.equal(wanted["w"], TENSORS["model"]["w"])


def test_only_safetensors_and_json_are_written(tmp_path):
    assert {p.suffix for p in save(tmp_path, 1).iterdir()} == {".safetensors", ".json"}


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]
)
@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_broken_file_is_named_and_its_checkpoint_skipped_and_kept(tmp_path, caplog, name, damage):
    save(tmp_path, 10)
    file = save(tmp_path, 20) / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    newest = Checkpoints(tmp_path, keep=9).newest()
    assert newest is not None
    assert newest.step == 10
    assert str(file) in caplog.text
    assert (tmp_path / "step-00000020").is_dir()


def test_a_manifest_that_names_a_file_outside_its_folder_is_broken(tmp_path):
    path = save(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["../../etc/passwd"] = {"bytes": 1, "sha256": "0"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BrokenCheckpoint):
        read_checkpoint(path)


def test_the_newest_are_kept_and_a_broken_one_is_not_removed(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "step-00000001" / "manifest.json").unlink()
    save(tmp_path, 4, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000003", "step-00000004"]


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_best_weights_of_each_checkpoint_that_is_kept_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step, kind in [(5, "best"), (8, "best"), (10, "step"), (15, "best"), (17, "best")]:
        checkpoints.save(step, TENSORS, {}, kind)
    assert names(tmp_path) == ["best-00000008", "best-00000017", "step-00000010"]
    for step in (20, 30):
        checkpoints.save(step, TENSORS, {})
    assert names(tmp_path) == ["best-00000017", "step-00000020", "step-00000030"]


def test_going_back_clears_the_best_weights_above_and_keeps_what_is_broken_there(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step, kind in [(8, "best"), (10, "step"), (15, "best"), (20, "step")]:
        checkpoints.save(step, TENSORS, {}, kind)
    (tmp_path / "step-00000020" / "state.json").write_text("")
    checkpoints.go_back(10)
    assert names(tmp_path) == ["aside-step-00000020-1", "best-00000008", "step-00000010"]
    assert "best-00000015" in caplog.text
    assert "aside-step-00000020-1" in caplog.text


def test_a_process_that_has_lost_the_run_moves_nothing(tmp_path):
    def lost():
        raise RuntimeError("the lease was lost")

    save(tmp_path, 1)
    with pytest.raises(RuntimeError, match="lease"):
        Checkpoints(tmp_path, keep=9, guard=lost).go_back(0)
    assert names(tmp_path) == ["step-00000001"]


def test_a_save_stopped_before_publishing_leaves_nothing_and_keeps_the_previous(tmp_path):
    def lost():
        raise RuntimeError("the lease was lost")

    save(tmp_path, 1)
    with pytest.raises(RuntimeError, match="lease"):
        Checkpoints(tmp_path, keep=9, guard=lost).save(2, TENSORS, {})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_what_a_killed_process_left_unfinished_is_cleaned(tmp_path):
    save(tmp_path, 1)
    (tmp_path / ".unfinished-step-00000002").mkdir()
    Checkpoints(tmp_path, keep=9).clean()
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


FULL_DISK = """
import logging, resource, signal, sys
from pathlib import Path
import tiny_training as tiny
logging.basicConfig()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run_dir, tracker = Path(sys.argv[1]), tiny.Recorder()
tiny.train(run_dir, trainer=tiny.trainer(max_steps=4), tracker=tracker)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
result = tiny.train(run_dir, trainer=tiny.trainer(max_steps=8), tracker=tracker)
print(result.steps, tracker.kinds()[-1], [p.name for p in (run_dir / "checkpoints").iterdir()])
"""


def test_a_save_that_finds_no_room_is_told_and_training_goes_on_with_the_previous_checkpoint(tmp_path):
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        env={"PYTHONPATH": f"{here}:{here.parents[1]}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "8 checkpoint_failed ['step-00000004']", done.stderr
    assert "no checkpoint could be written" in done.stderr
    assert "step-00000004" in done.stderr
