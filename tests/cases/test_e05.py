"""E05: packed documents saw each other (nanoVLM#204, LlamaFactory#2289, trl#784)."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from llmexp.data.batch import Batch
from llmexp.data.shards import Shards, ShardWriter
from llmexp.data.source import CorpusSource
from llmexp.model.config import ModelSpec

CASE = json.loads((Path(__file__).parent / "inputs" / "e05_pack.json").read_text())


def _packed(folder: Path, docs: list[list[int]], seq_len: int = 8) -> Batch:
    with ShardWriter(folder / "train", vocab_size=64, tokenizer="", chat=False) as writer:
        for doc in docs:
            writer.write(doc)
    source = CorpusSource(shards=Shards(folder, "train"), seed=0, global_batch=1, seq_len=seq_len)
    return source.step(0)[0]


def _model() -> torch.nn.Module:
    spec = ModelSpec(d_model=32, n_layers=2, n_heads=2, ffn_dim=64, vocab_size=64, max_seq_len=16)
    return spec.build(seed=0).double().eval()


def _loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    logits = model(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)
    picked = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.targets.flatten(), reduction="none"
    )
    return (picked * batch.mask.flatten()).sum()


def test_positions_and_targets_equal_the_file(tmp_path: Path) -> None:
    batch = _packed(tmp_path, CASE["docs"])
    assert batch.positions[0].tolist() == CASE["position_ids"]
    assert torch.where(batch.mask, batch.targets, -100)[0].tolist() == CASE["targets_next_token"]


def test_another_first_document_leaves_the_seconds_logits(tmp_path: Path) -> None:
    one = _packed(tmp_path / "one", CASE["docs"])
    other = _packed(tmp_path / "other", [CASE["other_first_doc"], CASE["docs"][1]])
    model = _model()
    logits = [model(b.ids, positions=b.positions, doc_ids=b.doc_ids)[0, 3:] for b in (one, other)]
    assert (logits[0] - logits[1]).abs().max() < 1e-5


def test_the_loss_of_the_pack_is_that_of_its_documents(tmp_path: Path) -> None:
    model = _model()
    pack = _loss(model, _packed(tmp_path / "pack", CASE["docs"]))
    alone = [_loss(model, _packed(tmp_path / str(k), [doc])) for k, doc in enumerate(CASE["docs"])]
    torch.testing.assert_close(pack, torch.stack(alone).sum())
