"""What the same held-out text costs without a model: a unigram code and `xz -9`."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from collections.abc import Iterable

from llmexp.evaluate.scores import NothingToScore


class UnigramEntropy:
    """The entropy of a stream of tokens under its own frequencies.

    That is the shortest code that knows how often each token occurs in exactly this text and
    nothing of their order: a lower bound for every unigram model, so a model under it has
    learned something about order.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def observe(self, ids: Iterable[int]) -> None:
        """Count tokens."""
        self.counts.update(ids)

    def nats(self) -> float:
        """Summed over all tokens counted: - sum_v c_v ln(c_v / n).

        Raises:
            NothingToScore: no token was counted.
        """
        n = self.counts.total()
        if n == 0:
            raise NothingToScore("no token was counted")
        return math.fsum(c * (math.log(n) - math.log(c)) for c in self.counts.values())


class XzSize:
    """Size of a stream of documents under `xz -9`, in bounded memory.

    Documents are joined by a newline: the model pays for the end of each document, and so does
    the compressor. The bytes counted are those of the documents alone.
    """

    def __init__(self) -> None:
        self._compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, preset=9)
        self.n_bytes = 0
        self._compressed = 0

    def observe(self, text: str) -> None:
        """Add one document."""
        data = text.encode("utf-8", errors="surrogatepass")
        if self.n_bytes:
            self._compressed += len(self._compressor.compress(b"\n"))
        self.n_bytes += len(data)
        self._compressed += len(self._compressor.compress(data))

    def bits_per_byte(self) -> float:
        """Compressed bits per byte of text, container included; ends the stream.

        Raises:
            NothingToScore: no byte was added.
        """
        if self.n_bytes == 0:
            raise NothingToScore("the text to compress has no byte")
        self._compressed += len(self._compressor.flush())
        return 8 * self._compressed / self.n_bytes
