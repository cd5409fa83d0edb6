"""Curation: each step, their order, and what they report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_options import option
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.config.spec import as_data
from llmexp.corpus.collect import collect
from llmexp.corpus.config import JsonlSpec
from llmexp.corpus.curation.config import (
    CodeQualitySpec,
    CurationSpec,
    DatatroveFilterSpec,
    EmptySpec,
    EncodingSpec,
    ExactDuplicatesSpec,
    GopherQualitySpec,
    PiiSpec,
    StepSpec,
    UnicodeSpec,
)
from llmexp.corpus.curation.curate import _told, curate
from llmexp.corpus.curation.seen import HashSet
from llmexp.corpus.curation.steps import Removed
from llmexp.corpus.faults import BadData
from llmexp.corpus.records import CorpusWriter, Record, normalized, read_records, text_of
from llmexp.track.progress import Interrupted

CASES = Path(__file__).parents[1] / "cases" / "inputs"


def prose(*texts: str) -> list[Record]:
    return [{"id": str(i), "source": "s", "kind": "prose", "text": text} for i, text in enumerate(texts)]


def corpus(path: Path, train: list[Record], heldout: list[Record] = ()) -> Path:  # type: ignore[assignment]
    with CorpusWriter(path) as writer:
        for split, records in (("train", train), ("heldout", heldout)):
            for record in records:
                writer.write(split, record)
    return path


def run(
    tmp_path: Path,
    train: list[Record],
    steps: dict[str, StepSpec],
    heldout: list[Record] = (),  # type: ignore[assignment]
) -> tuple[list[Record], dict[str, Any]]:
    """The training records that are left, and the statistics."""
    out = tmp_path / "out"
    statistics = curate(CurationSpec(steps=steps), corpus(tmp_path / "in", train, heldout), out, workers=1)
    return list(read_records(out, "train")), statistics


def from_case(name: str, tmp_path: Path) -> Path:
    out = tmp_path / "collected"
    collect(JsonlSpec(path=str(CASES / name), heldout=0.0), out)
    return out


def reason(spec: StepSpec, text: str, **fields: str) -> str | None:
    """Why a step removes a text; None when it does not."""
    try:
        spec.build().apply({"id": "a.py", "source": "s", "kind": "code", "text": text, **fields}, Counter())
    except Removed as removed:
        return str(removed)
    return None


def test_f01_short_texts_are_compared_whole_and_empty_ones_have_their_own_counter(tmp_path: Path) -> None:
    source = from_case("f01_short.jsonl", tmp_path)
    steps = {"empty": EmptySpec(), "duplicates": ExactDuplicatesSpec()}
    statistics = curate(CurationSpec(steps=steps), source, tmp_path / "out", workers=1)
    assert [normalized(record["text"]) for record in read_records(tmp_path / "out", "train")] == [
        "cat",
        "dog",
        "red fox",
        "one two three four",
        "one two three five",
    ]
    assert statistics["steps"]["empty"]["reasons"] == {"empty": 2}
    assert statistics["steps"]["duplicates"]["reasons"] == {"duplicate": 2}


def test_f05_pairs_join_and_lone_surrogates_are_replaced_and_counted(tmp_path: Path) -> None:
    source = from_case("f05_surrogates.jsonl", tmp_path)
    statistics = json.loads((source / "stats.json").read_text())
    assert statistics["repaired"] == {"lone_surrogates": 2}
    curate(option("curation", "none"), source, tmp_path / "out", workers=1)
    assert [record["text"] for record in read_records(tmp_path / "out", "train")] == [
        "ok \U0001f600",
        "x\ufffd y",
        "x\ufffd y",
    ]


def test_the_unicode_step_mends_surrogates_of_a_corpus_from_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "train").mkdir(parents=True)
    (folder / "heldout").mkdir()
    case = (CASES / "f05_surrogates.jsonl").read_text().splitlines()
    lines = [{**json.loads(line), "source": "s", "kind": "prose"} for line in case]
    (folder / "train" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    statistics = curate(option("curation", "none"), folder, tmp_path / "out", workers=1)
    assert statistics["steps"]["unicode"]["counts"]["lone_surrogates"] == 2


def test_f06_exactly_the_personal_data_is_masked_and_never_reported(tmp_path: Path) -> None:
    source = from_case("f06_pii.jsonl", tmp_path)
    steps = {"pii": PiiSpec()}
    statistics = curate(CurationSpec(steps=steps), source, tmp_path / "out", workers=1)
    words = {"@": "<EMAIL>", ".": "<IP_ADDRESS>", "+": "<PHONE_NUMBER>"}
    secrets = []
    case = (CASES / "f06_pii.jsonl").read_text().splitlines()
    for line, record in zip(case, read_records(tmp_path / "out", "train"), strict=True):
        expected = json.loads(line)
        for secret in expected["redact"]:
            mark = next(word for sign, word in words.items() if sign in secret)
            expected["text"] = expected["text"].replace(secret, mark)
            secrets.append(secret)
        assert record["text"] == expected["text"]
    assert statistics["steps"]["pii"]["counts"] == {"email": 1, "ip": 1, "phone": 1}
    assert not any(secret in json.dumps(statistics) for secret in secrets)
    curate(CurationSpec(steps=steps), tmp_path / "out", tmp_path / "twice", workers=1)
    assert list(read_records(tmp_path / "twice", "train")) == list(read_records(tmp_path / "out", "train"))


@pytest.mark.parametrize(
    "text, masked",
    [
        ("write to a.b+c@mail.example.org.", "write to <EMAIL>."),
        ("<pat@example.com>, (kim@example.co.uk)", "<<EMAIL>>, (<EMAIL>)"),
        ("git@github.com:owner/repo", "<EMAIL>:owner/repo"),
        ("sprite@3x.jpeg and user@host", "sprite@3x.jpeg and user@host"),
        ("a..b@example.com", "a..b@example.com"),
        ("at 203.0.113.7, port 80", "at <IP_ADDRESS>, port 80"),
        ("oid 1.3.6.1.4.1 and 1.2.3.4.5", "oid 1.3.6.1.4.1 and 1.2.3.4.5"),
        ("mask 255.255.255.0 on 127.0.0.1", "mask 255.255.255.0 on 127.0.0.1"),
        ("v1.2.3.4, version: 1.2.3.4, pip>=1.2.3.4", "v1.2.3.4, version: 1.2.3.4, pip>=1.2.3.4"),
        ("from 2001:db8::8a2e:370:7334 on", "from <IP_ADDRESS> on"),
        ("at 12:30:45 on ff:ff", "at 12:30:45 on ff:ff"),
        ("(202) 555-0143 or 202-555-0143", "<PHONE_NUMBER> or <PHONE_NUMBER>"),
        ("+44 20 7946 0958", "<PHONE_NUMBER>"),
        ("1234567890123456 and 10.1000/182", "1234567890123456 and 10.1000/182"),
        ("2025-03-10 12:00, 100-200-300", "2025-03-10 12:00, 100-200-300"),
    ],
)
def test_personal_data_is_told_from_what_looks_like_it(text: str, masked: str) -> None:
    step = PiiSpec().build()
    assert step.apply({"text": text}, Counter())["text"] == masked
    assert step.apply({"text": masked}, Counter())["text"] == masked


@settings(max_examples=300)
@given(st.text(alphabet="a1.@:+-() 2f<EMAIL>5", max_size=40))
def test_masking_twice_is_masking_once(text: str) -> None:
    step = PiiSpec().build()
    once = step.apply({"text": text}, Counter())["text"]
    assert step.apply({"text": once}, Counter())["text"] == once


def test_wrongly_decoded_text_is_repaired_and_taste_left_alone(tmp_path: Path) -> None:
    records = prose("schÃ¶n", "“quoted” &amp; ﬁne")
    left, statistics = run(tmp_path, records, {"encoding": EncodingSpec()})
    assert [record["text"] for record in left] == ["schön", "“quoted” &amp; ﬁne"]
    assert statistics["steps"]["encoding"]["counts"] == {"repaired": 1}


def test_unicode_is_normalised(tmp_path: Path) -> None:
    left, statistics = run(tmp_path, prose("e\u0301"), {"unicode": UnicodeSpec()})
    assert left[0]["text"] == "é"
    assert statistics["steps"]["unicode"]["counts"] == {"normalized": 1}


def test_the_heldout_copy_of_a_text_is_the_one_kept(tmp_path: Path) -> None:
    train, heldout = prose("one", "two  words", "one"), prose("two words", "three", "three")
    left, statistics = run(tmp_path, train, {"duplicates": ExactDuplicatesSpec()}, heldout)
    assert [record["text"] for record in left] == ["one"]
    assert [record["text"] for record in read_records(tmp_path / "out", "heldout")] == ["two words", "three"]
    assert statistics["steps"]["duplicates"]["removed"] == 3


def test_no_text_of_the_curated_library_is_on_both_sides_or_twice(
    curated: tuple[Path, dict[str, Any]],
) -> None:
    texts = [
        normalized(text_of(r)) for split in ("train", "heldout") for r in read_records(curated[0], split)
    ]
    assert len(set(texts)) == len(texts)


def test_the_kept_share_of_the_library_is_within_bounds(curated: tuple[Path, dict[str, Any]]) -> None:
    kept = curated[1]["kept"]["kinds"]
    assert 0.75 < kept["prose"]["characters"] < 0.97
    assert 0.75 < kept["code"]["characters"] < 0.97
    assert 0.4 < kept["prose"]["documents"] < 0.9


def test_removed_records_are_kept_with_step_reason_and_side(tmp_path: Path) -> None:
    run(tmp_path, prose("text", " "), {"empty": EmptySpec()}, prose("kept", ""))
    removed = list(read_records(tmp_path / "out", "removed"))
    assert [(r["reason"], r["removed_from"], r["text"]) for r in removed] == [
        ("empty: empty", "heldout", ""),
        ("empty: empty", "train", " "),
    ]


def test_steps_run_in_their_order(tmp_path: Path) -> None:
    records = prose("schön", "schÃ¶n")
    mend, compare = EncodingSpec(), ExactDuplicatesSpec()
    assert len(run(tmp_path / "a", records, {"encoding": mend, "duplicates": compare})[0]) == 1
    assert len(run(tmp_path / "b", records, {"duplicates": compare, "encoding": mend})[0]) == 2


def test_the_order_of_steps_is_part_of_their_data() -> None:
    a, b = EmptySpec(), UnicodeSpec()
    first, second = CurationSpec(steps={"a": a, "b": b}), CurationSpec(steps={"b": b, "a": a})
    assert json.dumps(as_data(first), sort_keys=True) != json.dumps(as_data(second), sort_keys=True)


def test_an_order_that_forgets_a_step_is_a_mistake() -> None:
    spec = CurationSpec(steps={"a": EmptySpec(), "b": UnicodeSpec()}, order=["a"])
    assert [mistake.path for mistake in spec.check()] == ["order"]


def test_steps_apply_by_kind(tmp_path: Path) -> None:
    code = {"id": "x.py", "source": "s", "kind": "code", "text": "x = 1\n"}
    steps: dict[str, StepSpec] = {"gopher": GopherQualitySpec(applies_to=["prose"])}
    left, statistics = run(tmp_path, [*prose("too short"), code], steps)
    assert left == [code]
    assert statistics["steps"]["gopher"]["in"] == 1


GOOD = "This is a sentence that has the words which we want to have in it. " * 10


@pytest.mark.parametrize(
    "text, why",
    [
        (GOOD, None),
        ("too short", "too few words"),
        ("the of " * 60_000, "too many words"),
        ("a b the of " * 20, "mean word length"),
        ("the #tag of #tag word " * 20, "symbols"),
        ("- the list of things we have\n" * 20, "bullet lines"),
        ("the list of all the many things that we have here to count and...\n" * 20, "ellipsis lines"),
        ("the of 1234 5678 " * 20, "words without letters"),
        ("lorem ipsum dolor sit amet " * 20, "stop words"),
    ],
)
def test_gopher_removes_with_the_first_broken_rule(text: str, why: str | None) -> None:
    assert reason(GopherQualitySpec(), text) == why


@pytest.mark.parametrize(
    "text, why",
    [
        ("def f(x):\n    return x + 1\n", None),
        ("def f(x:\n", "does not parse"),
        ("x = '" + "a" * 1000 + "'\n", "line length"),
        (("x = '" + "a" * 150 + "'\n") * 3, "mean line length"),
        ("((((((((((((((((\n" * 10, "alphanumeric share"),
        ("# This file is autogenerated, DO NOT EDIT\nx = 1\n", "generated"),
        ("x = 1\n" * 20 + "# generated by hand\n", None),
        ("print 'python two'\n", "does not parse"),
        ("(" * 5000 + ")" * 5000, "line length"),
    ],
)
def test_code_is_removed_with_the_first_broken_rule(text: str, why: str | None) -> None:
    assert reason(CodeQualitySpec(), text) == why


@pytest.mark.parametrize(
    "name, text, why",
    [
        ("gopher_repetition", "the same line again and again\n" * 20, "dup line frac"),
        ("fineweb_quality", "no sentence here\n" * 20, "line punct ratio"),
        ("c4_quality", GOOD + "{}.", "curly bracket"),
        ("c4_quality", "Short sentence here. " * 6, None),
    ],
)
def test_datatroves_filters_are_steps(name: str, text: str, why: str | None) -> None:
    assert reason(DatatroveFilterSpec(filter=name), text) == why


def test_other_languages_need_not_parse_as_python() -> None:
    assert reason(CodeQualitySpec(), "int main() { return 0; }", language="c") is None
    assert reason(CodeQualitySpec(), "int main() { return 0; }", id="main.c") is None


def test_conversations_pass_through_every_step(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "e\u0301"}, {"role": "assistant", "content": "to pat@example.com"}]
    chat = {"id": "1", "source": "s", "kind": "chat", "messages": said}
    out = tmp_path / "out"
    curate(option("curation", "prose_and_code"), corpus(tmp_path / "in", [chat, chat]), out, workers=1)
    (left,) = read_records(out, "train")
    assert [message["content"] for message in left["messages"]] == ["é", "to <EMAIL>"]


def test_removing_everything_of_a_side_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="removed all 1 held-out documents"):
        run(tmp_path, prose("text"), {"empty": EmptySpec()}, prose(" "))


def test_a_stop_is_obeyed(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in", prose("text"))
    with pytest.raises(Interrupted):
        curate(option("curation", "none"), source, tmp_path / "out", should_stop=lambda: True, workers=1)


def test_the_output_is_the_same_for_any_number_of_workers(
    stdlib: tuple[Path, dict[str, Any]], curated: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    curate(option("curation", "prose_and_code"), stdlib[0], tmp_path, workers=3)
    files = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(curated[0]) for p in curated[0].rglob("*") if p.is_file())
    assert all((tmp_path / f).read_bytes() == (curated[0] / f).read_bytes() for f in files)


KILLED = """
import sys
from pathlib import Path
from llmexp.corpus.curation.config import CurationSpec, UnicodeSpec
from llmexp.corpus.curation.curate import _told, curate

def report(*_):
    import multiprocessing
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    import time
    time.sleep(60)
    return False

if __name__ == "__main__":
    spec = CurationSpec(steps={"unicode": UnicodeSpec()})
    curate(spec, Path(sys.argv[1]), Path(sys.argv[2]), workers=2, should_stop=report)
"""


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    source = corpus(tmp_path / "in", prose(*(f"text {i}" for i in range(2000))))
    command = [sys.executable, str(tmp_path / "killed.py"), str(source), str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 2
    until = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@given(st.lists(st.lists(st.integers(0, 50) | st.integers(2**64 - 3, 2**64 - 1), max_size=30), max_size=12))
def test_the_hash_set_agrees_with_a_set(batches: list[list[int]]) -> None:
    compact, known = HashSet(), set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value in known)
            known.add(value)
        assert compact.add(np.asarray(batch, dtype=np.uint64)).tolist() == expected
    assert len(compact) == len(known)


def test_every_option_of_the_groups_is_sound() -> None:
    conf = Path(__file__).parents[2] / "conf"
    for group in ("data", "curation"):
        for file in (conf / group).glob("*.yaml"):
            spec = option(group, file.stem)
            assert getattr(spec, "path", "") == "???" or not list(spec.check())
            assert file.read_text().startswith("# ")


def test_the_commonest_reasons_are_told_and_the_rest_is_counted() -> None:
    steps = {
        "one": Counter({"kept": 9, "reason short": 1200, "reason odd": 2}),
        "two": Counter({"reason double": 30, "reason old": 4, "reason short": 5}),
    }
    assert _told(steps) == "1,205 short, 30 double, 4 old, 2 others"
    assert _told({"one": Counter()}) == ""
