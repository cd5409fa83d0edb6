"""trainer.compile changes the speed and nothing else."""

import pytest
import tiny_training as tiny
import torch

from llmexp.parallel.blocks import prepared
from llmexp.rollout.engine import generate
from llmexp.rollout.sampling import Sampling


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor", "ignore:.*torch.jit")  # torch's own
def test_compiled_blocks_train_to_the_same_losses_and_leave_the_model_as_it_was(tmp_path):
    plain, compiled = tiny.Recorder(), tiny.Recorder()
    tiny.train(tmp_path / "plain", tracker=plain, trainer=tiny.trainer(max_steps=3))
    model = tiny.model()
    tiny.train(
        tmp_path / "compiled", model=model, tracker=compiled, trainer=tiny.trainer(max_steps=3, compile=True)
    )
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert compiled.values["train/loss"] == pytest.approx(plain.values["train/loss"], abs=1e-5)
    assert compiled.values["train/grad_norm"] == pytest.approx(plain.values["train/grad_norm"], rel=1e-4)
    assert all(block._compiled_call_impl is None for block in model.blocks)


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # torch's own, when its compiler is imported
def test_generating_compiles_nothing():
    model = tiny.model()
    before = torch._dynamo.utils.counters["frames"]["total"]
    with prepared(model, recompute=False, compile_blocks=True):
        done = generate(model, [[1], [2, 3]], Sampling(max_new_tokens=4), [0, 1], [])
    assert torch._dynamo.utils.counters["frames"]["total"] == before
    expected = generate(model, [[1], [2, 3]], Sampling(max_new_tokens=4), [0, 1], [])
    assert done.ids.equal(expected.ids)
