"""K03: temperature 0 gives inf or NaN; top-p drops the token that crosses the mark, or drops all."""

import json
from pathlib import Path

import pytest
import torch

from llmexp.rollout.sampling import Sampling, completion_key, draw, kept_tokens

CASES = json.loads((Path(__file__).parent / "inputs/k03_sampling.json").read_text())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["top_p"]))
def test_top_p_keeps_the_token_that_crosses_the_mark(case: dict, dtype: torch.dtype) -> None:
    keep = kept_tokens(torch.tensor([case["p"]], dtype=dtype), Sampling(top_p=case["top_p"]))
    assert keep[0].nonzero()[:, 0].tolist() == case["keep"]


@pytest.mark.parametrize("seed", [1, 2])
def test_temperature_0_is_argmax_for_every_seed(seed: int) -> None:
    logits = torch.randn(16, 50, generator=torch.Generator().manual_seed(3))
    keys = torch.tensor([completion_key(seed, 0, i) for i in range(16)])
    ids, logprobs = draw(logits, keys, 0, Sampling(temperature=0))
    assert torch.equal(ids, logits.argmax(-1))
    assert bool(torch.isfinite(logprobs).all())


@pytest.mark.parametrize("fields", [{"temperature": -1}, {"top_p": 1.1}, {"top_p": -0.1}])
def test_values_out_of_range_are_refused(fields: dict) -> None:
    with pytest.raises(ValueError, match=r"below 0|between 0 and 1"):
        Sampling(**fields)


def test_top_k_above_the_vocabulary_is_off() -> None:
    keep = kept_tokens(torch.tensor([[0.5, 0.3, 0.2]]), Sampling(top_k=7))
    assert bool(keep.all())
