"""``llmexp report``."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from llmexp.stage.reporting import _typed


def test_the_report_of_the_last_run_is_written_and_its_path_printed(world, look):
    run = world.run()
    said = look("report")
    assert said.code == 0
    assert Path(said.out.strip()) == run / "report.html"
    assert "<html" in (run / "report.html").read_text()


def test_a_run_can_be_named_by_a_part_of_its_name(world, look):
    first = world.run()
    world.run(lr=2e-3)
    assert look("report", first.name, "--json").json["report"] == str(first / "report.html")


def test_outputs_that_moved_keep_their_models_and_their_report(trained, llmexp, tmp_path):
    """Runs are looked at with the folder's new name, from another working directory."""
    moved = tmp_path / "moved"
    shutil.copytree(trained / "outputs", moved, symlinks=True)
    hidden = trained / "elsewhere"
    (trained / "outputs").rename(hidden)
    try:
        said = llmexp("report", "last", "--outputs", moved)
        assert said.code == 0
        assert Path(said.out.strip()).stat().st_size > 50_000
        assert str(moved) in llmexp("show", "last", "--outputs", moved, "--json").out
        assert str(trained) not in llmexp("show", "last", "--outputs", moved, "--json").out
        words = ("generate", "last", "the", "--outputs", moved, "--max-new-tokens", "2")
        assert llmexp(*words).code == 0
    finally:
        hidden.rename(trained / "outputs")


def test_a_report_whose_artifacts_are_gone_is_left_as_it_is(trained, llmexp, tmp_path):
    outputs = tmp_path / "outputs"
    shutil.copytree(trained / "outputs", outputs, symlinks=True)
    shutil.rmtree(outputs / "store")
    (page,) = outputs.glob("runs/*/*/report.html")
    before = page.read_bytes()
    (trained / "outputs").rename(trained / "elsewhere")
    try:
        said = llmexp("report", "last", "--outputs", outputs)
    finally:
        (trained / "elsewhere").rename(trained / "outputs")
    assert (said.code, said.out.strip()) == (0, str(page))
    assert "left as it is: no artifact of" in said.err
    assert page.read_bytes() == before


def test_without_runs_it_is_a_mistake(look):
    assert look("report").code == 2


def test_a_command_to_copy_quotes_the_folder_of_outputs():
    command = _typed("llmexp chat 18375e", Path("my outputs"))
    assert shlex.split(command)[-2:] == ["--outputs", "my outputs"]
