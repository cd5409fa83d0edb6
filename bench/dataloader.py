"""Time that a training step waits for data ÷ time of the step, with the loader reading ahead.

    python -m bench.dataloader [--steps 40] [--packing documents]

The step is a forward and a backward pass of a small decoder, the quickest step that a run would have.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.ratio import fails, median_interval, show
from llmexp.data.config import PACKINGS, LoaderSpec
from llmexp.data.shards import Shards, ShardWriter


def random_shards(folder: Path, n_tokens: int, chat: bool) -> Shards:
    """Documents of log-normal length, as real text has them."""
    rng = np.random.default_rng(0)
    with ShardWriter(folder / "train", vocab_size=4096, tokenizer="", chat=chat) as writer:
        while writer.header.n_tokens < n_tokens:
            ids = rng.integers(0, 4096, int(rng.lognormal(6, 1)) + 2)
            writer.write(ids, mask=np.ones(len(ids)) if chat else None)
    return Shards(folder, "train")


def main() -> int:
    """Time steps and what they wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--packing", choices=PACKINGS, default="documents")
    parser.add_argument("--batch", type=int, default=16, help="samples in a step")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--at-most", type=float, help="fail when the median share is above this")
    asked = parser.parse_args()
    import torch

    from llmexp.model.config import ModelSpec

    spec = ModelSpec(
        d_model=128, n_layers=2, n_heads=4, ffn_dim=384, vocab_size=4096, max_seq_len=asked.seq_len
    )
    model = spec.build(seed=0)
    with tempfile.TemporaryDirectory() as folder:
        shards = random_shards(Path(folder), 4_000_000, chat=False)
        loader = LoaderSpec(seq_len=asked.seq_len, packing=asked.packing)
        source = loader.build(shards=shards, seed=0, global_batch=asked.batch)
        shares = []
        for step in range(asked.steps + 2):
            began, source.waited = time.perf_counter(), 0.0
            for batch in source.step(step):
                logits = model(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
                loss.backward()
            model.zero_grad()
            if step >= 2:
                shares.append(source.waited / (time.perf_counter() - began))
        source.close()
    share = median_interval(shares)
    show(f"dataloader: waiting / step time ({asked.packing})", share, "< 0.01")
    print(f"dataloader: waiting / step time over all {asked.steps} steps: {sum(shares) / len(shares):.4f}")
    return fails(share[0], at_most=asked.at_most)


if __name__ == "__main__":
    sys.exit(main())
