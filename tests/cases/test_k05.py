"""K05: perplexity depends on the batch split; an empty set gives a number.

The stage that evaluates runs in one process; of held-out losses over ranks, see ``launcher=processes``.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from llmexp.data.shards import ShardWriter
from llmexp.evaluate.documents import HeldOut
from llmexp.evaluate.heldout import Document, score_documents
from llmexp.evaluate.scores import NothingToScore, TokenScores, perplexity
from llmexp.model.config import ModelSpec

INPUTS = Path(__file__).parent / "inputs"


def test_perplexity_is_that_of_all_tokens_and_no_mean_of_batches():
    case = json.loads((INPUTS / "k05_ppl.json").read_text())
    scores = TokenScores.empty(15)
    for batch in case["batches"]:
        # Over two tokens the loss is softplus of the wrong one's lead.
        lead = math.log(math.expm1(batch["mean_nll"]))
        logits = torch.tensor([[0.0, lead]] * batch["tokens"], dtype=torch.float64)
        scores.observe(logits, torch.zeros(batch["tokens"], dtype=torch.int64))
    assert perplexity(scores.loss()) == pytest.approx(case["right"], abs=5e-6)


@pytest.fixture(scope="module")
def five_documents():
    model = ModelSpec(
        d_model=16, n_layers=2, n_heads=2, ffn_dim=32, vocab_size=50, max_seq_len=32, init_std=0.5
    ).build(seed=0)
    rng = np.random.default_rng(0)
    documents = [Document(rng.integers(0, 50, size=n)) for n in (3, 70, 17, 2, 25)]

    def measured(micro_batch: int) -> TokenScores:
        return score_documents(model, documents, seq_len=32, n_bins=15, micro_batch=micro_batch)

    return documents, measured


@pytest.mark.parametrize("micro_batch", [1, 2, 3])
def test_five_documents_have_one_perplexity_however_they_are_cut(five_documents, micro_batch):
    documents, measured = five_documents
    found, reference = measured(micro_batch), measured(1)
    assert found.n_tokens == sum(len(d.ids) - 1 for d in documents)
    assert perplexity(found.loss()) == pytest.approx(perplexity(reference.loss()), rel=1e-6)


def test_an_empty_set_has_no_figure_but_a_message(tmp_path):
    lines = (INPUTS / "k05_empty.jsonl").read_text().splitlines()
    with ShardWriter(tmp_path / "heldout", vocab_size=50, tokenizer="", chat=False) as writer:
        for line in lines:
            writer.write(json.loads(line))
    with pytest.raises(NothingToScore, match="0 documents and no token to score"):
        HeldOut(tmp_path)


def test_an_overflow_is_infinite():
    assert perplexity(1e6) == math.inf
