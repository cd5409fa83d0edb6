"""J04: the divergence is negative, or the policy moves away from reward. The bandit is in tests/rollout."""

import json
from pathlib import Path

import pytest
import torch

from llmexp.objective.grpo import kl_k3

CASE = json.loads((Path(__file__).parent / "inputs/j04_kl.json").read_text())


def test_k3_of_each_token_equals_the_file() -> None:
    logprobs, reference = torch.tensor(CASE["logp"]), torch.tensor(CASE["ref_logp"])
    assert kl_k3(logprobs, reference).tolist() == pytest.approx(CASE["k3"], abs=1e-5)
    assert kl_k3(logprobs, reference).mean().item() == pytest.approx(CASE["k3_mean"], abs=1e-5)
    assert (logprobs - reference).mean().item() == pytest.approx(CASE["k1_mean"])


def test_where_both_agree_divergence_and_gradient_are_zero() -> None:
    logprobs = torch.tensor(CASE["logp"], requires_grad=True)
    found = kl_k3(logprobs, logprobs.detach().clone())
    found.sum().backward()
    assert found.tolist() == [0.0, 0.0]
    assert logprobs.grad.tolist() == [0.0, 0.0]
