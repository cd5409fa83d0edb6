"""The reference pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.cli.reference import all_pages, main

COMMITTED = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="the pages are in the checkout, and this is no checkout")
def test_the_committed_pages_are_up_to_date():
    assert main([str(COMMITTED), "--check"]) == 0, "run: python -m llmexp.cli.reference docs/reference"


def test_a_page_that_was_edited_by_hand_is_out_of_date(tmp_path, capsys):
    main([str(tmp_path)])
    assert main([str(tmp_path), "--check"]) == 0
    (tmp_path / "model.md").write_text("mine")
    assert main([str(tmp_path), "--check"]) == 1
    assert "model.md is out of date" in capsys.readouterr().out


def test_a_field_stands_with_type_unit_default_and_limits():
    line = next(line for line in all_pages()["model.md"].splitlines() if line.startswith("| `max_seq_len`"))
    cells = ["`max_seq_len`", "`int`", "tokens", "**required**", "> 0", "yes"]
    assert line.split(" | ")[:6] == ["| `max_seq_len`", *cells[1:]]


def test_specs_that_only_a_field_holds_have_their_section():
    pages = all_pages()
    assert "## GopherQualitySpec" in pages["curation.md"]
    assert "## GRPOSpec" in pages["stage.md"]
    assert "## AdamWSpec" not in pages["stage.md"]
