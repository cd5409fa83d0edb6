"""Bytes and text from files that may be compressed, cut off or wrongly encoded; memory stays bounded."""

from __future__ import annotations

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llmexp.corpus.faults import BrokenFile

CHUNK = 1 << 18
"""Bytes read at a time."""

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
"""File endings of compressed files."""

_ZSTD_CHUNK = 1 << 12
"""zstandard cannot limit its output, so its input is kept small."""

_BOMS = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 1 << 16
_MAX_CONTROL = 0.05
_CONTROL = bytes(set(range(32)) - {8, 9, 10, 12, 13, 27})


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _decompressor(path: Path) -> Callable[[], Any] | None:
    """Makes decompressors for one member, frame or stream; the four libraries share their protocol."""
    makers: dict[str, Callable[[], Any]] = {
        ".gz": lambda: zlib.decompressobj(wbits=31),
        ".bz2": bz2.BZ2Decompressor,
        ".xz": lzma.LZMADecompressor,
        ".zst": _zstd,
    }
    return makers.get(path.suffix.lower())


def _raw_chunks(path: Path, size: int = CHUNK) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(size):
            yield chunk


def byte_chunks(path: Path) -> Iterator[bytes]:
    """The content of a file, decompressed by its ending, in chunks.

    Raises:
        BrokenFile: after all that could be read: the file is empty, cut off or not what its ending says.
    """
    try:
        if path.stat().st_size == 0:
            raise BrokenFile("empty")
        maker = _decompressor(path)
        yield from _raw_chunks(path) if maker is None else _decompressed(path, maker)
    except OSError as error:
        raise BrokenFile(f"cannot be read: {error.strerror or error}") from error


def _decompressed(path: Path, maker: Callable[[], Any]) -> Iterator[bytes]:
    import zstandard

    kind = path.suffix[1:].lower()
    member, begun = maker(), False
    try:
        for chunk in _raw_chunks(path, _ZSTD_CHUNK if kind == "zst" else CHUNK):
            while chunk:
                # Whole zero blocks after the end are padding (tar, tape), not another member.
                if not begun and not (chunk := chunk.lstrip(b"\0")):
                    break
                begun = True
                yield from _bounded(member, chunk)
                if not member.eof:
                    break
                chunk = member.unused_data
                member, begun = maker(), False
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError) as error:
        raise BrokenFile(f"not {kind}, or damaged: {error}") from error
    if begun:
        raise BrokenFile("truncated")


def _bounded(member: Any, chunk: bytes) -> Iterator[bytes]:
    """What one compressed chunk gives, in pieces: a few kilobytes of zeros can hold gigabytes."""
    if hasattr(member, "needs_input"):  # bz2, lzma
        yield member.decompress(chunk, CHUNK)
        while not (member.needs_input or member.eof):
            yield member.decompress(b"", CHUNK)
    elif isinstance(member, type(zlib.decompressobj())):
        while chunk:
            yield member.decompress(chunk, CHUNK)
            chunk = member.unconsumed_tail
    else:
        yield member.decompress(chunk)


def byte_lines(chunks: Iterator[bytes], limit: int) -> Iterator[bytes | None]:
    """Lines without their end; None stands for a line of more than ``limit`` bytes.

    A last line without a newline counts when the chunks end well, and is dropped when they
    break off: half a record is none.
    """
    pending, overlong = bytearray(), False
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            pending += chunk[start:end]
            yield None if overlong or len(pending) > limit else bytes(pending).removesuffix(b"\r")
            pending, overlong, start = bytearray(), False, end + 1
        pending += chunk[start:]
        if len(pending) > limit:
            pending, overlong = bytearray(), True
    if overlong or pending:
        yield None if overlong else bytes(pending).removesuffix(b"\r")


def bom_of(head: bytes) -> tuple[bytes, str] | None:
    """The byte-order mark that ``head`` begins with, and its encoding."""
    return next(((mark, name) for mark, name in _BOMS if head.startswith(mark)), None)


def is_binary(head: bytes) -> bool:
    """Whether the first bytes of a file are no text: one in twenty is a control character."""
    sample = head[:_SAMPLE]
    return len(sample) - len(sample.translate(None, _CONTROL)) > _MAX_CONTROL * len(sample)


class Decoded:
    """The text of a byte stream.

    The encoding is that of a byte-order mark, else ``declared`` if it is not made of single
    bytes (UTF-16 of English is also valid UTF-8), else UTF-8. Bytes that are not valid become
    lone surrogates (U+DC80 to U+DCFF), which `undecoded` finds and `mend` reads as ``declared``.

    Attributes:
        encoding: the encoding in use, known from the first chunk on.
        bom: whether a byte-order mark was removed.
    """

    def __init__(self, chunks: Iterator[bytes], declared: str) -> None:
        self._chunks = chunks
        self._declared = codecs.lookup(declared).name
        self.encoding = "utf-8"
        self.bom = False

    def utf8(self) -> Iterator[bytes]:
        """The chunks as UTF-8, where the encoding is a wide one; else as they are, without the mark.

        Raises:
            BrokenFile: the content is binary, or breaks off (see `byte_chunks`).
        """
        first = next(self._chunks, b"")
        while 0 < len(first) < 4:
            more = next(self._chunks, b"")
            if not more:
                break
            first += more
        found = bom_of(first)
        if found:
            self.bom, self.encoding = True, found[1]
            first = first[len(found[0]) :]
        elif self._declared.startswith(("utf-16", "utf-32")):
            self.encoding = self._declared
        if self.encoding == "utf-8":
            if is_binary(first):
                raise BrokenFile("binary (or UTF-16 without a byte-order mark: set data.encoding=utf-16-le)")
            yield first
            yield from self._chunks
            return
        yield from self._widened(first)

    def _widened(self, first: bytes) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        try:
            yield decoder.decode(first).encode("utf-8", "surrogatepass")
            for chunk in self._chunks:
                yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise BrokenFile(f"not {self.encoding}: {error.reason}") from error

    def text(self) -> Iterator[str]:
        """The text in chunks; a character is never cut."""
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        for chunk in self.utf8():
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)

    def mend(self, text: str) -> str | None:
        """``text`` read again as the declared encoding where it was no UTF-8; None where that fails too."""
        if not undecoded(text):
            return text
        return decode(text.encode("utf-8", "surrogateescape"), self._declared)


def decode(raw: bytes, declared: str) -> str | None:
    """Bytes as UTF-8, else as the declared encoding, else None."""
    for encoding in ("utf-8", declared):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None


def undecoded(text: str) -> bool:
    """Whether some bytes of the text were not valid UTF-8 (see `Decoded`)."""
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
