"""Byte-level BPE as ranks of byte strings, and when those are the same as a list of merges.

`tokenizers` merges the pairs it lists, in their order. tiktoken merges two neighbours whenever
their concatenation is a token, the one of lowest rank first. For a token t, let its split be the
two parts that tiktoken is left with when it encodes the bytes of t with the ranks below t's alone.

Both engines give the same ids for every text if each token that has a split lists it as a merge,
if the merges that are splits stand in the order of the ids, and if a token without a split is
never reached by merging. For consider neighbours x, y with xy = t at the moment when no pair of
a rank below t is left: nothing has crossed the borders of xy so far, so its inside went through
the same steps as t alone, and x, y is the split. Merges that are listed besides are never met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def byte_to_char() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2, Radford et al. 2019)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in table)
    table.update({byte: chr(256 + k) for k, byte in enumerate(hidden)})
    return table


BYTE_TO_CHAR = byte_to_char()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


def to_bytes(token: str) -> bytes | None:
    """The bytes that a token of the vocabulary stands for; None where it holds a character of no byte."""
    try:
        return bytes(CHAR_TO_BYTE[char] for char in token)
    except KeyError:
        return None


def to_chars(token: bytes) -> str:
    """A byte string as the vocabulary writes it."""
    return "".join(BYTE_TO_CHAR[byte] for byte in token)


def split_below(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """What is left of ``token`` after merging, lowest rank first, pairs of ranks below its own."""
    limit = ranks[token]
    parts = [token[k : k + 1] for k in range(len(token))]
    while True:
        best, at = limit, -1
        for k in range(len(parts) - 1):
            rank = ranks.get(parts[k] + parts[k + 1], limit)
            if rank < best:
                best, at = rank, k
        if at < 0:
            return parts
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def merges_of(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merges that reproduce ``ranks``, in order; tokens that merging never reaches have none."""
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        parts = split_below(token, ranks) if len(token) > 1 else []
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def equal_ranks(
    vocab: Mapping[bytes, int], merges: Sequence[tuple[bytes, bytes]], whole_words: bool
) -> tuple[dict[bytes, int], str]:
    """Ranks with which tiktoken does as ``tokenizers`` does with ``vocab`` and ``merges``.

    ``whole_words`` says that a word that is a token is taken whole, without merging (``ignore_merges``).
    Returns the ranks and an empty string, or no ranks and the reason why there are none.
    """
    if missing := sum(bytes([byte]) not in vocab for byte in range(256)):
        return {}, f"{missing} of the 256 bytes are no token"
    order = {merge: k for k, merge in reversed(list(enumerate(merges)))}
    ranks = dict(vocab)
    last = -1
    for token in sorted(vocab, key=vocab.__getitem__):
        if len(token) == 1:
            continue
        parts = split_below(token, vocab)
        if len(parts) != 2:
            if not whole_words:
                del ranks[token]
            continue
        place = order.get((parts[0], parts[1]))
        if place is None:
            return {}, f"no merge makes the token {token!r} of {parts[0]!r} and {parts[1]!r}"
        if place < last:
            return {}, f"the merge that makes {token!r} does not stand in the order of the ids"
        last = place
    return ranks, ""
