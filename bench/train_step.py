"""Tokens a second of llmexp's training loop ÷ a plain PyTorch loop's, on the same model, dtype and batch.

    python -m bench.train_step [--blocks 20] [--steps 3] [--batch 8] [--precision fp32|bf16]
    python -m bench.train_step --memory          # growth of memory after imports, in processes of their own

The plain loop's blocks run inside the source of ours, between two of its steps, so that both sides
are warm, share one process and take turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from bench.ratio import fails, median_interval, show
from llmexp.data.batch import Batch
from llmexp.model.config import ModelSpec
from llmexp.model.decoder import Decoder
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.config import ParallelSpec
from llmexp.track.journal import Journal
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker
from llmexp.train import lightning, loop
from llmexp.train.config import AdamWSpec, ConstantSpec, Precision, TrainerSpec
from llmexp.train.fit import fit

IMPORTED = (lightning, loop)
"""``fit`` imports these when it is called; here that comes before anything is measured."""

VOCAB = 8192
SPEED_TARGET, MEMORY_TARGET = 0.97, 1.05


def small() -> Decoder:
    """The 17M-parameter decoder of ``conf/model/small.yaml``."""
    sizes = {"d_model": 384, "n_layers": 6, "n_heads": 6, "ffn_dim": 1024, "vocab_size": VOCAB}
    return ModelSpec(**sizes, max_seq_len=1024).build(seed=0)


def random_batch(rows: int, seq_len: int, seed: int) -> Batch:
    """Random tokens, one document a row, all of which count."""
    ids = torch.randint(0, VOCAB, (rows, seq_len + 1), generator=torch.Generator().manual_seed(seed))
    return Batch(
        ids=ids[:, :-1],
        targets=ids[:, 1:],
        mask=torch.ones(rows, seq_len, dtype=torch.bool),
        positions=torch.arange(seq_len).expand(rows, seq_len),
        doc_ids=torch.zeros(rows, seq_len, dtype=torch.int32),
        sample_ids=list(range(rows)),
    )


class PlainLoop:
    """What one would write by hand: forward, backward, clip, step, log the loss."""

    def __init__(self, bf16: bool) -> None:
        self._model, self._bf16 = small(), bf16
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.losses: list[float] = []

    def step(self, batch: Batch) -> None:
        """One optimizer step."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._bf16):
            logits = self._model(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())


class Batches:
    """A source of one batch a step; ``before`` is called first."""

    def __init__(self, asked: argparse.Namespace, before: Callable[[int], None]) -> None:
        self._asked, self._before = asked, before

    def step(self, step: int) -> Sequence[Batch]:
        """See ``llmexp.train.run.Source``."""
        self._before(step)
        return [random_batch(self._asked.batch, self._asked.seq_len, step)]

    figures: ClassVar[dict[str, float]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""
        del state


class ToJournal(Tracker):
    """A journal on disk, as every run has."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)

    def metrics(self, values: Any, step: int) -> None:
        """Log values of a step."""
        self._journal.metrics(values, step)


def run_ours(asked: argparse.Namespace, steps: int, before: Callable[[int], None]) -> None:
    """``steps`` steps of the product's loop."""
    trainer = TrainerSpec(
        max_steps=steps,
        global_batch=asked.batch,
        precision=Precision[asked.precision],
        checkpoint_every=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        fit(
            model=small(),
            objective=CrossEntropy(),
            source=Batches(asked, before),
            trainer=trainer,
            optimizer=AdamWSpec(),
            scheduler=ConstantSpec(),
            parallel=ParallelSpec(),
            seed=0,
            seq_len=asked.seq_len,
            run_dir=Path(folder),
            tracker=ToJournal(Path(folder) / "journal.jsonl"),
            progress=Progress(),
        )


def compare_speed(asked: argparse.Namespace) -> tuple[float, float, float]:
    """Time of a plain block ÷ time of the block of ours before it; the first pair is the warm-up."""
    plain = PlainLoop(asked.precision == "bf16")
    ours_began: list[float] = []
    ratios: list[float] = []

    def take_turns(step: int) -> None:
        if step % asked.steps == 0:
            now = time.perf_counter()
            ours = now - ours_began.pop() if ours_began else None
            for i in range(asked.steps):
                plain.step(random_batch(asked.batch, asked.seq_len, step + i))
            if ours is not None:
                ratios.append((time.perf_counter() - now) / ours)
            ours_began.append(time.perf_counter())

    run_ours(asked, (asked.blocks + 1) * asked.steps + 1, take_turns)
    return median_interval(ratios[1:])


def growth_mib(work: Callable[[], object]) -> float:
    """Peak of this process's resident memory during ``work`` less what it had before, in MiB."""
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    before = int(fields["VmRSS"].split()[0])
    work()
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return (int(fields["VmHWM"].split()[0]) - before) / 1024


def measure_memory(asked: argparse.Namespace) -> None:
    """Print this side's growth over a few steps, its last checkpoint included on our side."""

    def plain() -> None:
        plain_loop = PlainLoop(asked.precision == "bf16")
        for step in range(asked.steps):
            plain_loop.step(random_batch(asked.batch, asked.seq_len, step))

    ours = lambda: run_ours(asked, asked.steps, lambda _: None)  # noqa: E731
    print(growth_mib(plain if asked.side == "plain" else ours))


def compare_memory(arguments: list[str]) -> float:
    """Growth of ours ÷ growth of the plain loop's, each in a process of its own."""
    grown = {}
    for side in ("ours", "plain"):
        command = [sys.executable, "-m", "bench.train_step", *arguments, "--side", side]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        grown[side] = float(told.split()[-1])
        print(f"{side}: {grown[side]:.0f} MiB")
    return grown["ours"] / grown["plain"]


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3, help="steps of a block")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--at-least", type=float, help="fail when the ratio of the speeds is below this")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--side", choices=("ours", "plain"), help="measure the memory of this side alone")
    asked = parser.parse_args()
    if asked.side:
        measure_memory(asked)
    elif asked.memory:
        grown = compare_memory(sys.argv[1:])
        print(f"memory growth, ours / plain: {grown:.3f}, target at most {MEMORY_TARGET}")
    else:
        ratio = compare_speed(asked)
        show("tokens/s, ours / plain", ratio, f"at least {SPEED_TARGET}")
        return fails(ratio[0], at_least=asked.at_least)
    return 0


if __name__ == "__main__":
    sys.exit(main())
