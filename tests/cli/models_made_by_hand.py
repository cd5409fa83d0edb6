"""Model folders whose text is known beforehand."""

from __future__ import annotations

from pathlib import Path

import torch

from llmexp.model.config import ModelSpec
from llmexp.model.io import save
from llmexp.tokenizer.bpe import make_bytes
from llmexp.tokenizer.tokenizer import Tokenizer


def always(byte: int, folder: Path, *, rows_more: int = 0) -> Path:
    """A model that writes one byte for ever; with ``rows_more`` its likeliest row is one of padding."""
    folder.mkdir()
    make_bytes(out=folder, chat_template=None)
    rows = Tokenizer.load(folder).vocab_size + rows_more
    spec = ModelSpec(d_model=8, n_layers=1, n_heads=2, ffn_dim=8, max_seq_len=128, vocab_size=rows)
    model = spec.build(seed=0)
    with torch.no_grad():
        for block in model.blocks.parameters():
            block.zero_()
        model.embed.weight.fill_(1.0)
        model.head_weight.zero_()
        model.head_weight[byte] = 10.0
        model.head_weight[rows - rows_more :] = 20.0
    save(model, spec, folder)
    return folder
