"""One precision for every pass of a run: training, what its source samples, held-out figures."""

import pytest
import tiny_training as tiny
import torch

from llmexp.nn.precision import compute_dtype
from llmexp.train.config import Precision


@pytest.mark.parametrize("precision,dtype", [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_source_and_held_out_figures_see_the_precision_of_training(tmp_path, precision, dtype):
    seen = []

    class Looking(tiny.Sequences):
        def step(self, step):
            seen.append(compute_dtype(torch.zeros(1)))
            return super().step(step)

    def validate(model):
        seen.append(model.hidden(torch.zeros(1, 4, dtype=torch.int64)).matmul(model.head_weight.T).dtype)
        return {"val/loss": 1.0}

    spec = tiny.trainer(max_steps=None, max_tokens=96, precision=Precision[precision], val_every=1)
    tiny.train(tmp_path, source=Looking(), validate=validate, trainer=spec)
    assert seen == [dtype] * 4  # a step and its figures, twice


def test_the_precision_of_a_run_ends_with_it(tmp_path):
    tiny.train(tmp_path, trainer=tiny.trainer(max_steps=1, precision=Precision.bf16))
    assert not torch.is_autocast_enabled("cpu")
