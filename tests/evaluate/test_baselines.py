"""What a text costs without a model."""

import lzma
import math

import pytest

from llmexp.evaluate.baselines import UnigramEntropy, XzSize
from llmexp.evaluate.scores import NothingToScore


def test_the_unigram_entropy_of_equal_counts_is_the_logarithm_of_their_number():
    unigram = UnigramEntropy()
    unigram.observe([1, 2, 3, 4] * 5)
    assert unigram.nats() == pytest.approx(20 * math.log(4))


def test_the_unigram_entropy_of_one_repeated_token_is_zero():
    unigram = UnigramEntropy()
    unigram.observe([7] * 9)
    assert unigram.nats() == pytest.approx(0.0, abs=1e-12)


def test_counting_in_pieces_gives_the_same_entropy():
    whole, pieces = UnigramEntropy(), UnigramEntropy()
    ids = [1, 1, 2, 5, 5, 5]
    whole.observe(ids)
    pieces.observe(ids[:2])
    pieces.observe(ids[2:])
    assert pieces.nats() == whole.nats()


def test_xz_compresses_the_documents_joined_by_newlines_at_level_nine():
    documents = ["import json\n" * 50, "naïve café ✓", "x" * 1000]
    xz = XzSize()
    for document in documents:
        xz.observe(document)
    n_bytes = sum(len(d.encode()) for d in documents)
    size = len(lzma.compress("\n".join(documents).encode(), preset=9))
    assert xz.n_bytes == n_bytes
    assert xz.bits_per_byte() == pytest.approx(8 * size / n_bytes)


@pytest.mark.parametrize("figure", [UnigramEntropy().nats, XzSize().bits_per_byte])
def test_a_baseline_of_nothing_is_refused(figure):
    with pytest.raises(NothingToScore):
        figure()
