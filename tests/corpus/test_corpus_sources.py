"""The sources made from the standard library, the arithmetic, the split, and sources of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from corpus_options import option
from hypothesis import given
from hypothesis import strategies as st

from llmexp.config.spec import setting
from llmexp.corpus.arithmetic import Problem, problems
from llmexp.corpus.collect import collect, pin_revision, source_paths
from llmexp.corpus.config import (
    ArithmeticSpec,
    HuggingFaceSpec,
    JsonlSpec,
    ProblemsSpec,
    SplitDataSpec,
    TextFilesSpec,
)
from llmexp.corpus.faults import BadData
from llmexp.corpus.records import SPLITS, CorpusWriter, Record, normalized, read_records, well_formed
from llmexp.corpus.source import SplitSource
from llmexp.track.progress import Interrupted


def test_the_standard_library_is_about_ten_megabytes(stdlib: tuple[Path, dict[str, Any]]) -> None:
    characters = sum(stdlib[1]["characters"].values())
    assert 8e6 < characters < 14e6
    assert stdlib[1]["kinds"]["prose"]["characters"] > 1e6
    assert stdlib[1]["n_bad_files"] == 0


def test_about_the_asked_share_of_the_standard_library_is_held_out(
    stdlib: tuple[Path, dict[str, Any]],
) -> None:
    characters = stdlib[1]["characters"]
    assert 0.02 < characters["heldout"] / sum(characters.values()) < 0.09


def test_no_module_is_on_both_sides_of_the_split(stdlib: tuple[Path, dict[str, Any]]) -> None:
    keys = [{record["split_key"] for record in read_records(stdlib[0], split)} for split in SPLITS]
    assert keys[0].isdisjoint(keys[1])


def test_the_hashed_patterns_of_the_library_exist() -> None:
    import glob

    patterns = source_paths(option("data", "python_stdlib"))
    assert all(next(glob.iglob(pattern, recursive=True), None) for pattern in patterns)
    assert not any("site-packages" in pattern for pattern in patterns)


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("chats")
    collect(option("data", "docstring_chats"), out)
    return out


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prompts")
    collect(option("data", "arithmetic"), out)
    return out


def _operands(record: Record) -> tuple[int, ...]:
    """The numbers in a question such as 'What is 47 + 25?', lowest first."""
    words = record["messages"][0]["content"].rstrip("?").split()
    return tuple(sorted(int(word) for word in words if word.isdigit()))


def test_no_heldout_problem_is_trained_on_in_either_order(chats: Path, prompts: Path) -> None:
    heldout = {_operands(record) for record in read_records(prompts, "heldout")}
    demonstrated = {
        _operands(record) for record in read_records(chats, "train") if record["source"] == "arithmetic"
    }
    rehearsed = {_operands(record) for record in read_records(prompts, "train")}
    assert len(heldout) >= 200
    assert len(demonstrated) == 1000  # pairs of operands, whatever their order and copies
    assert heldout.isdisjoint(demonstrated | rehearsed)


def test_the_answers_are_right(chats: Path, prompts: Path) -> None:
    for record in read_records(prompts, "train"):
        assert int(record["answer"]) == sum(_operands(record))
    for record in read_records(chats, "train"):
        if record["source"] == "arithmetic":
            assert int(record["messages"][1]["content"]) == sum(_operands(record))


def test_no_answer_about_the_library_is_on_both_sides_of_the_split(chats: Path) -> None:
    answers = [
        {
            record["messages"][1]["content"]
            for record in read_records(chats, split)
            if record["source"] == "docstrings"
        }
        for split in SPLITS
    ]
    assert answers[0].isdisjoint(answers[1])
    assert len(answers[0]) > 1500


def test_heldout_conversations_are_about_heldout_modules_only(
    chats: Path, stdlib: tuple[Path, dict[str, Any]]
) -> None:
    texts = [
        normalized(record["text"])
        for record in read_records(stdlib[0], "train")
        if record["source"] == "docstrings"
    ]
    trained = "\n".join(texts)
    heldout = [record for record in read_records(chats, "heldout") if record["source"] == "docstrings"]
    modules = {record["split_key"] for record in read_records(stdlib[0], "heldout")}
    assert len(heldout) > 50
    assert {record["split_key"] for record in heldout} <= modules
    answers = [normalized(record["messages"][1]["content"]).rstrip(".") for record in heldout]
    assert sum(answer in trained for answer in answers) <= len(answers) // 10


def test_a_known_function_is_asked_about(chats: Path) -> None:
    found = {
        record["messages"][1]["content"]
        for split in SPLITS
        for record in read_records(chats, split)
        if record["id"].startswith("json.dumps?")
    }
    assert found == {"Serialize ``obj`` to a JSON formatted ``str``."}


@given(
    low=st.integers(0, 30),
    width=st.integers(3, 20),
    operators=st.lists(st.sampled_from("+-*"), min_size=1, unique=True),
    samples=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_problems_of_any_range_and_sample_never_cross_the_split(
    low: int, width: int, operators: list[str], samples: tuple[int, int]
) -> None:
    spec = ProblemsSpec(low=low, high=low + width, operators=operators)
    train = problems(spec, "train", 10**6, samples[0])
    heldout = problems(ProblemsSpec(), "heldout", 10**6, samples[1]) + problems(spec, "heldout", 10**6, 0)
    assert {p.key for p in train}.isdisjoint(p.key for p in heldout)
    assert len(set(train)) == len(train)


def test_a_problem_and_its_turned_form_share_their_side() -> None:
    assert all(Problem(a, b, "+").split == Problem(b, a, "+").split for a in range(40) for b in range(40))


@pytest.mark.parametrize(
    "digits, question, answer",
    [
        ("plain", "What is 47 + 85?", "132"),
        ("spaced", "What is 4 7 + 8 5?", "1 3 2"),
        ("reversed", "What is 47 + 85?", "231"),
    ],
)
def test_numbers_are_written_as_asked_for(digits: str, question: str, answer: str) -> None:
    from llmexp.corpus import arithmetic

    spec = ProblemsSpec(digits=digits)
    problem = Problem(47, 85, "+")
    assert (arithmetic.question(problem, spec), arithmetic.answer(problem, spec)) == (question, answer)


def test_too_few_problems_are_a_mistake() -> None:
    spec = ArithmeticSpec(problems=ProblemsSpec(low=1, high=3))
    assert [mistake.path for mistake in spec.check()] == ["problems.high"]


def test_equal_texts_are_on_the_same_side_whatever_their_spaces(tmp_path: Path) -> None:
    rows = [{"text": f"text{gap}number{gap}{i}"} for i in range(200) for gap in (" ", "  ", "\n")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    collect(JsonlSpec(path=str(tmp_path), heldout=0.3), tmp_path / "out")
    sides = [
        {" ".join(record["text"].split()) for record in read_records(tmp_path / "out", split)}
        for split in SPLITS
    ]
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[0]) + len(sides[1]) == 200


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_small_corpus_still_holds_something_out(count: int, tmp_path: Path) -> None:
    for i in range(count):
        (tmp_path / f"{i}.txt").write_text(f"note {i}")
    statistics = collect(TextFilesSpec(path=str(tmp_path), heldout=1e-9), tmp_path / "out")
    assert statistics["documents"] == {"train": count - 1, "heldout": 1}


def test_one_document_cannot_be_split_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alone")
    with pytest.raises(BadData, match=r"too few.*data\.piece_chars.*data\.heldout=0"):
        collect(TextFilesSpec(path=str(tmp_path)), tmp_path / "out")


@dataclass(kw_only=True)
class WeekdaysSpec(SplitDataSpec):
    """A source of one's own."""

    builds: ClassVar[str] = f"{__name__}:Weekdays"
    length: int = setting("Days.", default=100)


@dataclass(kw_only=True)
class Weekdays(SplitSource):
    """Its runtime side."""

    length: int

    def records(self) -> Iterator[Record]:
        for i in range(self.length):
            yield {"id": str(i), "source": "weekdays", "kind": "prose", "text": f"day {i}"}


def test_a_source_of_ones_own_needs_a_spec_and_a_records_method(tmp_path: Path) -> None:
    statistics = collect(WeekdaysSpec(length=500, max_documents=300, heldout=0.2), tmp_path)
    assert sum(statistics["documents"].values()) == 300
    assert statistics["documents"]["heldout"] > 20


def test_a_stop_is_obeyed(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        collect(WeekdaysSpec(length=1000), tmp_path, should_stop=lambda: True)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(records=st.lists(st.fixed_dictionaries({"text": st.text(), "extra": json_values}), max_size=20))
def test_records_come_back_as_they_were_written(
    records: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("round")
    with CorpusWriter(out) as writer:
        for record in records:
            writer.write("train", record)
    assert list(read_records(out, "train")) == records
    assert list(read_records(out, "heldout")) == []


def test_a_damaged_corpus_is_named(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path) as writer:
        writer.write("train", {"text": "x" * 1000})
    shard = tmp_path / "train" / "00000.jsonl.zst"
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(BadData, match=r"00000\.jsonl\.zst is damaged: truncated"):
        list(read_records(tmp_path, "train"))


@given(st.text(alphabet=st.characters(), max_size=30) | st.text(alphabet="a\ud83d\ude00\udc80é"))
def test_every_text_is_made_well_formed_once(text: str) -> None:
    mended, lone = well_formed(text)
    mended.encode("utf-8")
    assert well_formed(mended) == (mended, 0)
    assert mended.count("\ufffd") == text.count("\ufffd") + lone


MEMORY = """
import json, resource, sys
from pathlib import Path
import llmexp.corpus.readers, zstandard
from llmexp.corpus.collect import collect
from llmexp.corpus.config import JsonlSpec
folder = Path(sys.argv[1])
text = "the quick brown fox jumps over the lazy dog and " * 80
block = "".join(json.dumps({"text": f"{i} {text}"}) + "\\n" for i in range(250))
with open(folder / "a.jsonl", "w") as file:
    for _ in range(210):
        file.write(block)
assert (folder / "a.jsonl").stat().st_size > 200e6
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
collect(JsonlSpec(path=str(folder)), folder / "out")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(run.stdout) < 40  # MiB, while 200 MB pass


def test_a_dataset_on_the_hub_is_read_at_the_commit_that_it_was_known_by(tmp_path, monkeypatch) -> None:
    loaded = []

    def load_dataset(*_: Any, revision: str, **__: Any) -> list[Record]:
        loaded.append(revision)
        return [{"text": f"text {number}"} for number in range(99)]

    monkeypatch.setattr("llmexp.corpus.hub.resolved_revision", lambda _, revision: f"commit of {revision}")
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    spec = HuggingFaceSpec(path="owner/data", revision="main")
    assert pin_revision(spec) == "commit of main"
    collect(spec, tmp_path / "out")
    assert loaded == ["commit of main"]


def test_a_local_folder_of_a_dataset_has_no_commit(tmp_path) -> None:
    assert pin_revision(HuggingFaceSpec(path=str(tmp_path))) is None
