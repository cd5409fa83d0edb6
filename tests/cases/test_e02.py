"""E02: padding found by the token's value hid the true end of a document (transformers#23530, trl#976)."""

from __future__ import annotations

import json
from pathlib import Path

from llmexp.data.shards import Shards, ShardWriter
from llmexp.data.source import CorpusSource

CASE = json.loads((Path(__file__).parent / "inputs" / "e02_rows.json").read_text())


def test_only_true_padding_is_ignored_though_it_has_the_id_of_the_end(tmp_path: Path) -> None:
    """The file's labels are not shifted, so they are compared where the document is, less its first token."""
    with ShardWriter(tmp_path / "train", vocab_size=10, tokenizer="", chat=False) as writer:
        for row in CASE["rows"]:
            writer.write(row)
    source = CorpusSource(shards=Shards(tmp_path, "train"), seed=0, global_batch=2, seq_len=5, packing="pad")
    (batch,) = source.step(0)
    rows = sorted(range(2), key=lambda k: int((batch.doc_ids[k] >= 0).sum()))
    supervised = 0
    for row, padded, labels in zip(rows, CASE["padded"], CASE["labels"], strict=True):
        assert batch.ids[row].tolist() == padded
        in_document = (batch.doc_ids[row] >= 0).tolist()
        assert in_document == [label != -100 for label in labels]
        supervised += sum(in_document)
        expected = [label for label in labels[1:] if label != -100]
        assert batch.targets[row][batch.mask[row]].tolist() == expected
        assert expected[-1] == CASE["eos_id"]
    assert supervised == CASE["supervised"]
