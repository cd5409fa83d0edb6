"""replica.py RUN_DIR STOP_AT: one rank of a training run; the launcher's variables say which.

Rank 1 is asked to stop at step STOP_AT, and then the run goes on. Tells what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

import tiny_training as tiny
import torch.distributed as dist

from llmexp.parallel.config import ParallelSpec
from llmexp.track.progress import Interrupted

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
run_dir, stop_at = Path(sys.argv[1]), int(sys.argv[2])
tracker = tiny.Recorder()
arguments = {
    "source": tiny.Sequences(rows=4, cuts=1, rank=rank, ranks=ranks),
    "parallel": ParallelSpec(dp_replicate=ranks),
    "tracker": tracker,
}
told: dict[str, object] = {}
asked = iter(range(1, 10**6))
try:
    tiny.train(run_dir, should_stop=lambda: rank == 1 and next(asked) == stop_at, **arguments)
except Interrupted as interrupted:
    told["interrupted"] = str(interrupted)
told["hash"] = tiny.train(run_dir, **arguments).weights_hash
told["losses"] = tracker.values.get("train/loss", {})
told["norms"] = tracker.values.get("train/grad_norm", {})
(run_dir / f"told-{rank}.json").write_text(json.dumps(told))
dist.destroy_process_group()
