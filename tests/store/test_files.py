"""Which files a path, a folder or a glob means."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path

import pytest

from llmexp.store.files import files_of, walk

NAMES = ("a.txt", "b.md", "sub/c.txt", "sub/deep/d.txt", ".hidden/e.txt", "sub/.f.txt", "od[d]/g.txt")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "tree"


@pytest.mark.parametrize(
    "pattern",
    ["*.txt", "**/*.txt", "**", "sub/**/*", "s*/*", "**/deep/*", "?.md", "od[[]d]/*", "no/*", "**/x"],
)
def test_a_glob_means_what_it_means_to_python(tree: Path, pattern: str):
    given = os.path.join(glob.escape(str(tree)), pattern)
    base, names = files_of(given)
    wanted = {found for found in glob.glob(given, recursive=True) if os.path.isfile(found)}
    assert {os.path.join(base, name) for name in names} == wanted
    assert names == sorted(names)


def test_a_folder_means_all_its_files(tree: Path):
    assert files_of(str(tree)) == (tree, sorted(NAMES))


@pytest.mark.parametrize("links", [1, 3])
def test_links_that_lead_in_a_circle_are_entered_once(tree: Path, links: int):
    for number in range(links):
        (tree / "sub" / f"link{number}").symlink_to(tree)
    (tree / "outside").symlink_to(tree / "sub")
    found = set(walk(str(tree)))
    assert {"a.txt", "sub/c.txt", "outside/c.txt"} <= found
    assert not any(name.startswith("sub/link") for name in found)
    assert files_of(f"{tree}/**/*.md")[1] == ["b.md"]


def test_a_link_to_nothing_is_no_file(tree: Path):
    (tree / "gone.txt").symlink_to(tree / "nothing")
    assert "gone.txt" not in files_of(str(tree))[1]


def test_a_link_to_itself_is_neither_file_nor_folder(tree: Path):
    before = files_of(str(tree))
    (tree / "loop").symlink_to(tree / "loop")
    assert files_of(str(tree)) == before
    assert "loop" not in files_of(f"{tree}/**")[1]


def test_hidden_folders_that_do_not_count_are_not_entered(tree: Path, monkeypatch):
    entered, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(str(path)) or scandir(path))
    names = files_of(str(tree), hidden=False)[1]
    assert names == sorted(name for name in NAMES if not any(p[0] == "." for p in name.split("/")))
    assert sorted(entered) == sorted(str(tree / name) for name in (".", "sub", "sub/deep", "od[d]"))


def test_a_folder_that_goes_away_meanwhile_holds_nothing(tree: Path):
    names = walk(str(tree))
    first = next(names)
    shutil.rmtree(tree / "sub")
    assert not any(name.startswith("sub/") for name in [first, *names])


def test_what_is_escaped_is_no_wildcard(tree: Path):
    for folder in (tree / "od[d]", tree / "even"):
        folder.mkdir(exist_ok=True)
        (folder / "g.txt").write_text("the same")
        assert files_of(os.path.join(glob.escape(str(folder)), "**", "*.txt")) == (folder, ["g.txt"])
