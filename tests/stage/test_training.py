"""What a training stage refuses once its inputs are there, and what a check can see of them before."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.config.mistakes import UserError
from llmexp.data.config import LoaderSpec
from llmexp.data.shards import ShardWriter
from llmexp.model.config import ModelSpec
from llmexp.objective.cross_entropy import CrossEntropy
from llmexp.parallel.config import ParallelSpec
from llmexp.plan.config import HardwareSpec
from llmexp.stage.config import Pretrain
from llmexp.stage.context import Context
from llmexp.stage.heads import read_head
from llmexp.stage.training import train
from llmexp.store.store import Store
from llmexp.track.progress import Progress
from llmexp.track.tracker import Tracker
from llmexp.train.config import AdamWSpec, ConstantSpec, StopWhen, TrainerSpec


def test_a_training_that_held_out_figures_are_to_end_does_not_begin_without_them(tmp_path: Path) -> None:
    model = ModelSpec(d_model=8, n_layers=1, n_heads=2, ffn_dim=8, vocab_size=9, max_seq_len=8)
    spec = Pretrain(
        parallel=ParallelSpec(),
        optimizer=AdamWSpec(),
        scheduler=ConstantSpec(),
        trainer=TrainerSpec(max_steps=2, val_every=1, stop_when=StopWhen.val_loss_rises),
        model=model,
        loader=LoaderSpec(seq_len=8),
    )
    context = Context(
        name="pretrain",
        out=tmp_path / "out",
        run_dir=tmp_path / "run",
        store=Store([tmp_path / "store"]),
        tracker=Tracker(),
        progress=Progress(quiet=True),
        should_stop=lambda: False,
        guard=lambda: None,
        hardware=HardwareSpec(),
    )
    with pytest.raises(UserError, match=r"pretrain\.trainer\.stop_when: .* nothing is held out"):
        train(
            spec,
            context,
            model=model.build(seed=0),
            model_spec=model,
            tokenizer=tmp_path,
            objective=CrossEntropy(),
            source=None,  # type: ignore[arg-type]
            validate=None,
            seq_len=8,
        )


@pytest.mark.parametrize("documents", [0, 3])
def test_given_shards_say_whether_any_are_held_out(tmp_path: Path, documents: int) -> None:
    for split, number in (("train", 5), ("heldout", documents)):
        with ShardWriter(tmp_path / split, vocab_size=9, tokenizer="", chat=False) as writer:
            for _ in range(number):
                writer.write([1, 2, 3])
    assert read_head("shards", tmp_path).held_out is (documents > 0)
