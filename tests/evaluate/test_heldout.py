"""Cutting documents into windows, and scoring them with a model."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from llmexp.evaluate.heldout import Document, score_documents, windows
from llmexp.evaluate.scores import NothingToScore


class Bigram(nn.Module):
    """The smallest causal language model: the next token depends on the present one alone."""

    def __init__(self, vocab_size: int = 16, d_model: int = 8) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(vocab_size, d_model, generator=generator))
        self.head_weight = nn.Parameter(torch.randn(vocab_size, d_model, generator=generator))

    def hidden(self, ids: Tensor) -> Tensor:
        """ids (batch, seq) -> (batch, seq, d_model)."""
        return self.embedding[ids]


@given(n=st.integers(0, 60), seq_len=st.integers(1, 20), overlap=st.integers(0, 19))
def test_each_token_is_scored_once(n: int, seq_len: int, overlap: int):
    overlap = min(overlap, seq_len - 1)
    cut = list(windows(Document(np.arange(1, n + 1)), seq_len=seq_len, overlap=overlap))
    scored = [t for w in cut for t in w.targets[w.counted].tolist()]
    assert scored == list(range(2, n + 1))


@given(n=st.integers(2, 60), seq_len=st.integers(2, 20), overlap=st.integers(0, 19))
def test_no_window_is_longer_than_the_context_and_each_target_follows_its_token(n, seq_len, overlap):
    for w in windows(Document(np.arange(n)), seq_len=seq_len, overlap=min(overlap, seq_len - 1)):
        assert len(w.ids) <= seq_len
        assert (w.targets == w.ids + 1).all()


def test_an_overlap_gives_later_windows_their_context():
    cut = list(windows(Document(np.arange(12)), seq_len=6, overlap=2))
    assert cut[1].ids[0] == 4
    assert cut[1].targets[cut[1].counted][0] == 7


def test_only_tokens_under_the_mask_count():
    mask = np.array([0, 0, 1, 1, 0, 1], dtype=np.uint8)
    (window,) = windows(Document(np.arange(6), mask), seq_len=16)
    assert window.targets[window.counted].tolist() == [2, 3, 5]


def test_the_figures_do_not_depend_on_the_micro_batch():
    """Case K05: micro-batches of 1, 2, 3, five documents."""
    rng = np.random.default_rng(0)
    documents = [Document(rng.integers(0, 16, size=n)) for n in (3, 40, 17, 2, 25)]
    model = Bigram()

    def figures(micro_batch: int) -> tuple[float, float, int]:
        scores = score_documents(model, documents, seq_len=8, n_bins=15, micro_batch=micro_batch)
        return scores.loss(), scores.ece(), scores.n_tokens

    reference = figures(1)
    assert reference[2] == sum(len(d.ids) - 1 for d in documents)
    for micro_batch in (2, 3):
        assert figures(micro_batch) == pytest.approx(reference, abs=1e-6)


def test_the_loss_is_that_of_a_plain_forward_pass():
    model, ids = Bigram(), np.random.default_rng(1).integers(0, 16, size=30)
    scores = score_documents(model, [Document(ids)], seq_len=64, n_bins=15)
    x = torch.from_numpy(ids)
    logits = model.hidden(x[:-1]) @ model.head_weight.T
    expected = nn.functional.cross_entropy(logits, x[1:])
    assert scores.loss() == pytest.approx(expected.item(), rel=1e-6)


def test_the_model_is_left_in_the_mode_it_was_in():
    model = Bigram().train()
    score_documents(model, [Document(np.arange(4))], seq_len=4, n_bins=15)
    assert model.training


def test_no_documents_give_no_figure():
    with pytest.raises(NothingToScore):
        score_documents(Bigram(), [], seq_len=4, n_bins=15).loss()
