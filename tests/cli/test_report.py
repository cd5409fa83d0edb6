"""``llmexp report``."""

from __future__ import annotations

from pathlib import Path


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


def test_without_runs_it_is_a_mistake(look):
    assert look("report").code == 2
