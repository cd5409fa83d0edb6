"""Reading local files: every kind, and everything that can be wrong with them."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from llmexp.corpus.collect import collect, source_paths
from llmexp.corpus.config import (
    ChatJsonlSpec,
    CsvSpec,
    DataSpec,
    HuggingFaceSpec,
    JsonlSpec,
    ParquetSpec,
    TextFilesSpec,
)
from llmexp.corpus.faults import BadData, BrokenFile
from llmexp.corpus.records import read_records
from llmexp.corpus.streams import byte_chunks, byte_lines

CASES = Path(__file__).parents[1] / "cases" / "inputs"
WHOLE = {"heldout": 0.0}


def read(spec: DataSpec, tmp_path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All training records of a source, and its statistics."""
    out = tmp_path / "out"
    statistics = collect(spec, out)
    return list(read_records(out, "train")), statistics


def texts(spec: DataSpec, tmp_path: Path) -> list[str]:
    return [record["text"] for record in read(spec, tmp_path)[0]]


def lines(*values: str) -> bytes:
    return "".join(json.dumps({"text": value}) + "\n" for value in values).encode()


COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("ending", COMPRESS)
def test_json_lines_are_read_through_any_compression(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(COMPRESS[ending](lines("one", "zwei ü")))
    assert texts(JsonlSpec(path=f"{tmp_path}/a.jsonl{ending}", **WHOLE), tmp_path) == ["one", "zwei ü"]


def test_several_compressed_members_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines("one")) + gzip.compress(lines("two")))
    zst = zstandard.ZstdCompressor().compress
    (tmp_path / "b.jsonl.zst").write_bytes(zst(lines("three")) + zst(lines("four")))
    assert texts(JsonlSpec(path=str(tmp_path), **WHOLE), tmp_path) == ["one", "two", "three", "four"]


def test_a_record_names_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.jsonl").write_bytes(lines("one") + b"\n" + lines("two"))
    records, _ = read(JsonlSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["id"] for record in records] == ["sub/a.jsonl:1", "sub/a.jsonl:3"]


def test_csv_values_stay_text_whatever_they_look_like(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,010\n2,no\n3,12:30\n4,"two\nlines, quoted"\n')
    spec = CsvSpec(path=str(tmp_path), **WHOLE)
    assert texts(spec, tmp_path) == ["010", "no", "12:30", "two\nlines, quoted"]


def test_a_csv_row_of_another_width_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,good\n2\n3,good,too many\n")
    records, statistics = read(CsvSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["text"] for record in records] == ["good"]
    assert statistics["n_bad_records"] == 2


def test_a_missing_column_names_those_that_exist(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body\na,b\n")
    with pytest.raises(BadData, match="no column 'text', but title, body"):
        read(CsvSpec(path=str(tmp_path), **WHOLE), tmp_path)


def test_parquet_is_read_by_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3], "text": ["one", None, "three"]}), tmp_path / "a.parquet")
    records, statistics = read(ParquetSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["text"] for record in records] == ["one", "three"]
    assert statistics["bad_records"] == [{"file": "a.parquet", "record": 2, "problem": "no text"}]


def test_damaged_parquet_is_a_bad_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    _, statistics = read(ParquetSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [bad["file"] for bad in statistics["bad_files"]] == ["b.parquet"]


def test_a_local_folder_in_the_hub_format_is_streamed(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    pq.write_table(pa.table({"text": ["one", "two"]}), folder / "train-00000-of-00001.parquet")
    assert texts(HuggingFaceSpec(path=str(folder), **WHOLE), tmp_path) == ["one", "two"]


def test_a_missing_hub_column_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"body": "one"}\n')
    with pytest.raises(BadData, match=r"no column 'text', but body.*data\.text_field"):
        read(HuggingFaceSpec(path=str(folder), **WHOLE), tmp_path)


def test_chats_of_both_usual_forms_are_read_and_other_fields_kept(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "answer": 7},
        {"messages": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "b"}]},
        {"messages": [{"role": "user", "content": "alone"}]},
        {"messages": "text"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    records, statistics = read(ChatJsonlSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["messages"][-1] for record in records] == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    assert records[0]["answer"] == 7
    assert statistics["n_bad_records"] == 2


def test_a_folder_is_searched_for_text_and_hidden_files_are_left(tmp_path: Path) -> None:
    for name in ("a.txt", "deep/er/b.md", "c.png", ".hidden.txt", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(TextFilesSpec(path=str(tmp_path), **WHOLE), tmp_path) == ["a.txt", "deep/er/b.md"]


def test_a_glob_chooses_files(tmp_path: Path) -> None:
    for name in ("a.log", "x/b.log", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(TextFilesSpec(path=f"{tmp_path}/**/*.log", **WHOLE), tmp_path) == ["a.log", "x/b.log"]


def test_a_long_text_is_cut_at_blank_lines_and_nothing_is_lost(tmp_path: Path) -> None:
    paragraphs = [f"{i} " + "word " * (i % 50) for i in range(3000)]
    (tmp_path / "a.txt").write_text("\n\n".join(paragraphs))
    found = texts(TextFilesSpec(path=str(tmp_path), piece_chars=1000, **WHOLE), tmp_path)
    assert "".join(found) == "\n\n".join(paragraphs)
    assert all(text.endswith("\n\n") for text in found[:-1])


def test_a_separator_cuts_a_file_into_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one<|endoftext|>\ntwo<|endoftext|>")
    found = texts(TextFilesSpec(path=str(tmp_path), separator="<|endoftext|>", **WHOLE), tmp_path)
    assert found == ["one", "\ntwo"]


def test_a_document_too_large_is_left_out_and_the_next_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one|" + "x" * 900_000 + "|three")
    spec = TextFilesSpec(
        path=str(tmp_path), separator="|", piece_chars=0, max_document_bytes=300_000, **WHOLE
    )
    records, statistics = read(spec, tmp_path)
    assert [record["text"] for record in records] == ["one", "three"]
    assert statistics["n_bad_records"] == 1


def test_a_huge_line_is_counted_without_being_held(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines("one", "x" * 1_000_000, "three"))
    records, statistics = read(JsonlSpec(path=str(tmp_path), max_document_bytes=1000, **WHOLE), tmp_path)
    assert [record["text"] for record in records] == ["one", "three"]
    assert statistics["bad_records"][0]["record"] == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("kind", [TextFilesSpec, JsonlSpec, CsvSpec])
def test_a_byte_order_mark_tells_the_encoding_and_is_counted(
    encoding: str, kind: type, tmp_path: Path
) -> None:
    content = {
        TextFilesSpec: "größer ✓",
        JsonlSpec: '{"text": "größer ✓"}\n',
        CsvSpec: "text\ngrößer ✓\n",
    }[kind]
    suffix = {TextFilesSpec: "txt", JsonlSpec: "jsonl", CsvSpec: "csv"}[kind]
    (tmp_path / f"a.{suffix}").write_bytes(content.encode(encoding))
    records, statistics = read(kind(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["text"] for record in records] == ["größer ✓"]
    assert statistics["repaired"] == {"byte_order_marks": 1}


def test_a_wrong_encoding_is_counted_and_a_declared_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("größer".encode("latin-1"))
    (tmp_path / "b.txt").write_text("größer")
    records, statistics = read(TextFilesSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["source"] for record in records] == ["b.txt"]
    assert "data.encoding" in statistics["bad_records"][0]["problem"]
    spec = TextFilesSpec(path=str(tmp_path), encoding="latin-1", **WHOLE)
    assert texts(spec, tmp_path / "again") == ["größer", "größer"]


def test_binary_empty_and_nul_carrying_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "nul.txt").write_bytes(b"a text with one \0 in it, and more words behind it")
    records, statistics = read(TextFilesSpec(path=str(tmp_path), **WHOLE), tmp_path)
    assert [record["text"] for record in records] == ["a text with one  in it, and more words behind it"]
    problems = {bad["file"]: bad["problem"].split()[0] for bad in statistics["bad_files"]}
    assert problems == {"binary.txt": "binary", "empty.txt": "empty"}
    assert statistics["repaired"] == {"nul_characters": 1}


def test_more_bad_files_than_allowed_are_an_error_that_names_them_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("good")
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_bytes(b"")
    with pytest.raises(BadData, match=r"a\.txt: empty; b\.txt: empty.*raise data\.max_bad_files"):
        read(TextFilesSpec(path=str(tmp_path), max_bad_files=1, **WHOLE), tmp_path)


def test_more_bad_records_than_allowed_are_an_error_that_names_them_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines("good") + b"{broken\n[]\n" + lines("good"))
    assert read(JsonlSpec(path=str(tmp_path), **WHOLE), tmp_path)[1]["n_bad_records"] == 2
    with pytest.raises(BadData, match=r"a\.jsonl:2: no JSON.*raise data\.max_bad_records"):
        read(JsonlSpec(path=str(tmp_path), max_bad_records=1, **WHOLE), tmp_path / "again")


def test_a_path_with_nothing_readable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no file with the endings"):
        read(TextFilesSpec(path=str(tmp_path), **WHOLE), tmp_path)
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(BadData, match=r"nothing readable: a\.txt: empty"):
        read(TextFilesSpec(path=str(tmp_path), **WHOLE), tmp_path)


def test_a_path_that_does_not_exist_is_a_mistake_found_by_check(tmp_path: Path) -> None:
    missing = [m.path for m in TextFilesSpec(path=f"{tmp_path}/none").check()]
    unmatched = [m.path for m in TextFilesSpec(path=f"{tmp_path}/*.none").check()]
    assert (missing, unmatched) == (["path"], ["path"])
    assert [m.path for m in TextFilesSpec(path=str(tmp_path)).check()] == ["path"]
    (tmp_path / "a.txt").write_text("text")
    assert not list(TextFilesSpec(path=str(tmp_path)).check())


def _truncated_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("f03_truncated.jsonl.gz", "f03_whole.jsonl.gz"):
        (folder / name).write_bytes((CASES / name).read_bytes())
    (folder / "empty.jsonl.gz").write_bytes(b"")
    (folder / "plain.jsonl.gz").write_bytes(lines("plain text"))
    return folder


def test_truncated_files_keep_their_complete_records_when_skipped(tmp_path: Path) -> None:
    spec = JsonlSpec(path=str(_truncated_folder(tmp_path)), on_bad_file="skip", **WHOLE)
    records, statistics = read(spec, tmp_path)
    cut = [record["text"] for record in records if record["source"] == "f03_truncated.jsonl.gz"]
    assert cut == [f"sentence number {i} of a small file" for i in range(50)]
    assert "a whole file" in [record["text"] for record in records]
    bad = {entry["file"]: (entry["problem"], entry["records"]) for entry in statistics["bad_files"]}
    assert bad["f03_truncated.jsonl.gz"] == ("truncated", 50)
    assert bad["empty.jsonl.gz"] == ("empty", 0)
    assert bad["plain.jsonl.gz"][0].startswith("not gz")


def test_the_first_truncated_file_is_an_error_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes((CASES / "f03_truncated.jsonl.gz").read_bytes())
    with pytest.raises(BadData, match=r"a\.jsonl\.gz: truncated \(after 50 complete records\)"):
        read(JsonlSpec(path=str(tmp_path), on_bad_file="fail", **WHOLE), tmp_path)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400)), st.integers(1, 500))
def test_lines_do_not_depend_on_where_chunks_end(data: bytes, cuts: list[int], limit: int) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[a:b] for a, b in itertools.pairwise(edges)]
    found = list(byte_lines(iter(chunks), limit))
    whole = data.split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    assert found == [None if len(line) > limit else line.removesuffix(b"\r") for line in expected]


@pytest.mark.parametrize("ending", [ending for ending in COMPRESS if ending])
@given(data=st.binary(min_size=1, max_size=300), share=st.floats(0, 1, exclude_max=True))
def test_any_truncation_of_a_compressed_file_is_noticed(
    ending: str, data: bytes, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    packed = COMPRESS[ending](data)
    file = tmp_path_factory.getbasetemp() / f"cut{ending}"
    file.write_bytes(packed)
    assert b"".join(byte_chunks(file)) == data
    file.write_bytes(packed[: int(share * len(packed))])
    with pytest.raises(BrokenFile):
        list(byte_chunks(file))


def test_the_hashed_patterns_of_a_folder_cover_the_files_that_are_read(tmp_path: Path) -> None:
    for name in ("a.txt", "x/b.md", "x/c.txt.gz", "d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"text") if name.endswith("gz") else b"text")
    patterns = source_paths(TextFilesSpec(path=str(tmp_path)))
    assert patterns == [f"{tmp_path}/**/*{ending}" for ending in (".md", ".txt", ".txt.gz")]


def test_links_in_a_circle_name_no_document_twice(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("one note")
    for name in ("x", "y"):
        (tmp_path / "notes" / name).symlink_to(tmp_path / "notes")
    for path in (tmp_path / "notes", tmp_path / "notes" / "**" / "*.txt"):
        records, _ = read(TextFilesSpec(path=str(path), **WHOLE), tmp_path / str(path.name != "notes"))
        assert [record["text"] for record in records] == ["one note"]


def test_a_file_name_that_is_not_utf_8_is_written_in_escapes(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    with open(os.fsencode(folder) + b"/cr\xe8me.txt", "w") as file:
        file.write("coffee")
    records, statistics = read(TextFilesSpec(path=str(folder), **WHOLE), tmp_path)
    assert [record["text"] for record in records] == ["coffee"]
    assert "cr\\xe8me.txt" in records[0]["id"]
    assert statistics["n_bad_files"] == 0


def test_the_ending_of_a_compression_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "A.TXT.GZ").write_bytes(gzip.compress(b"packed"))
    for path in (tmp_path / "notes", tmp_path / "notes" / "A.TXT.GZ"):
        records, _ = read(TextFilesSpec(path=str(path), **WHOLE), tmp_path / str(path.is_dir()))
        assert [record["text"] for record in records] == ["packed"]


@pytest.mark.parametrize("delimiter", ["\t", r"\t"])
def test_a_tab_between_columns_can_be_typed(tmp_path: Path, delimiter: str) -> None:
    (tmp_path / "a.csv").write_text("id\ttext\n1\tone\n")
    assert texts(CsvSpec(path=f"{tmp_path}/a.csv", delimiter=delimiter, **WHOLE), tmp_path) == ["one"]
