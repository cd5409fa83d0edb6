"""Readers of tables: csv and Parquet, a batch of rows at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmexp.corpus.faults import BadData, BrokenFile
from llmexp.corpus.files import SourceFile
from llmexp.corpus.readers import EncodedSource, FileSource, Unusable, clean
from llmexp.corpus.streams import Decoded, byte_lines

CSV_SUFFIXES = (".csv", ".tsv")
PARQUET_SUFFIXES = (".parquet", ".pq")
_BATCH_ROWS = 128


@dataclass(kw_only=True)
class CsvTable(EncodedSource):
    """One document a row, from the column ``text_field``."""

    text_field: str
    delimiter: str

    def wanted(self) -> tuple[str, ...]:
        """Endings of csv files."""
        return CSV_SUFFIXES

    def read(self, file: SourceFile) -> Iterator[tuple[int, Any]]:
        """The rows of one file after its header."""
        decoded = self.decoded(file)
        csv.field_size_limit(self.max_document_bytes)
        rows = csv.reader(self._lines(decoded), delimiter=self.delimiter, strict=True)
        header = self._header(rows, file)
        column, number = header.index(self.text_field), 0
        while True:
            number += 1
            try:
                row = next(rows)
            except StopIteration:
                break
            except csv.Error as error:
                yield number, Unusable(f"no csv: {error}")
                continue
            if row:  # a blank line is no row
                try:
                    yield number, {"text": self._text(row, column, len(header), decoded)}
                except Unusable as error:
                    yield number, error
        if decoded.bom:
            self._faults.repaired["byte_order_marks"] += 1

    def _lines(self, decoded: Decoded) -> Iterator[str]:
        for line in byte_lines(decoded.utf8(), self.max_document_bytes):
            if line is None:
                raise BrokenFile(f"a line is larger than data.max_document_bytes={self.max_document_bytes}")
            yield line.decode("utf-8", "surrogateescape") + "\n"

    def _header(self, rows: Iterator[list[str]], file: SourceFile) -> list[str]:
        try:
            header = next(rows, [])
        except csv.Error as error:
            raise BrokenFile(f"no csv header: {error}") from error
        if self.text_field not in header:
            raise BadData(
                f"{file.name} has no column {self.text_field!r}, but {', '.join(header[:20]) or 'none'}. "
                "Set data.text_field (or data.delimiter)"
            )
        return header

    def _text(self, row: list[str], column: int, width: int, decoded: Decoded) -> str:
        if len(row) != width:
            raise Unusable(f"{len(row)} columns, the header has {width}")
        text = decoded.mend(row[column])
        if text is None:
            raise Unusable("neither UTF-8 nor data.encoding")
        return clean(text, self.max_document_bytes, self._faults)


@dataclass(kw_only=True)
class Parquet(FileSource):
    """One document a row, from the column ``text_field``; other columns are not read."""

    text_field: str

    def wanted(self) -> tuple[str, ...]:
        """Endings of Parquet files."""
        return PARQUET_SUFFIXES

    def read(self, file: SourceFile) -> Iterator[tuple[int, Any]]:
        """The rows of one file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if file.path.stat().st_size == 0:
            raise BrokenFile("empty")
        try:
            # The default reads whole row groups ahead, which are often as large as the file.
            with pq.ParquetFile(file.path, pre_buffer=False, buffer_size=1 << 20) as table:
                self._check_column(table.schema_arrow.names, file)
                rows = table.iter_batches(_BATCH_ROWS, columns=[self.text_field], use_threads=False)
                yield from self._rows(rows)
        except (pa.ArrowException, OSError) as error:
            raise BrokenFile(f"not Parquet, or damaged: {str(error).splitlines()[0]}") from error

    def _check_column(self, names: list[str], file: SourceFile) -> None:
        if self.text_field not in names:
            raise BadData(
                f"{file.name} has no column {self.text_field!r}, but {', '.join(names[:20])}. "
                "Set data.text_field"
            )

    def _rows(self, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        number = 0
        for batch in batches:
            for value in batch.column(0):
                number += 1
                try:
                    text = value.as_py()
                except UnicodeDecodeError:
                    yield number, Unusable("the text is not UTF-8")
                    continue
                try:
                    yield number, {"text": clean(text, self.max_document_bytes, self._faults)}
                except Unusable as error:
                    yield number, error
