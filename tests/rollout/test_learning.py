"""GRPO on a bandit: a prompt, one token to choose, reward for one choice. The direction of every sign."""

from typing import Any

import pytest
import torch

from llmexp.model.config import ModelSpec
from llmexp.objective.grpo import GRPO
from llmexp.rollout.config import RolloutSpec
from llmexp.rollout.measure import exact_match

RECORDS = [{"id": "arms", "messages": [{"role": "user", "content": "?"}], "answer": "A"}]
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "ffn_dim": 32, "max_seq_len": 64}


def arm_a(_record: dict, completion: str) -> float:
    return float(completion == "A")


def two_armed(tokenizer: Any) -> torch.nn.Module:
    """A decoder that answers A or B and next to nothing else, as often the one as the other."""
    model = ModelSpec(**SIZES, vocab_size=tokenizer.vocab_size).build(seed=0)  # type: ignore[arg-type]
    prompt = torch.tensor([tokenizer.encode_prompt(RECORDS[0]["messages"])])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(60):
        logprobs = model(prompt, last_only=True)[0, -1].log_softmax(-1)
        loss = -(logprobs[ord("A")] + logprobs[ord("B")]) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def arms(model: torch.nn.Module, tokenizer: Any) -> torch.Tensor:
    """Probabilities of A and of B."""
    with torch.no_grad():
        prompt = torch.tensor([tokenizer.encode_prompt(RECORDS[0]["messages"])])
        p = model(prompt, last_only=True)[0, -1].softmax(-1)
    return torch.stack([p[ord("A")], p[ord("B")]])


def train(tokenizer: Any, *, beta: float, steps: int) -> torch.Tensor:
    """Probabilities of the arms after ``steps`` updates by plain gradient descent."""
    model, reference = two_armed(tokenizer), two_armed(tokenizer)
    objective = GRPO(
        clip_low=0.2, clip_high=0.2, beta=beta, mask_truncated=False, scale_by_std=True, temperature=1.0
    )
    runtime = {"records": RECORDS, "reward": arm_a, "objective": objective, "seed": 0, "global_batch": 32}
    source = RolloutSpec(group_size=32, max_new_tokens=1).build(
        model=model, tokenizer=tokenizer, reference=reference, **runtime
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        (batch,) = source.step(step)
        optimizer.zero_grad()
        (objective(model, batch).total / objective.count(batch)).backward()
        optimizer.step()
    return arms(model, tokenizer)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_one_update_makes_the_rewarded_arm_likelier(tokenizer: Any, beta: float) -> None:
    before = arms(two_armed(tokenizer), tokenizer)
    assert train(tokenizer, beta=beta, steps=1)[0] > before[0]


def test_a_larger_penalty_ends_nearer_to_the_reference(tokenizer: Any) -> None:
    start = arms(two_armed(tokenizer), tokenizer)
    moved = [(train(tokenizer, beta=beta, steps=20) - start).abs().sum().item() for beta in (0.0, 0.5, 2.0)]
    assert moved[0] > moved[1] > moved[2]


def test_exact_match_counts_the_likeliest_answers(tokenizer: Any) -> None:
    model = two_armed(tokenizer)
    likeliest = "AB"[int(arms(model, tokenizer).argmax())]
    records = [{**RECORDS[0], "answer": answer} for answer in (likeliest, likeliest, "ABC", likeliest)]
    found = exact_match(model, tokenizer, records, max_new_tokens=1)
    assert (found["exact_match"], found["n"], found["exact_match_1"], found["exact_match_3"]) == (
        0.75,
        4,
        1.0,
        0.0,
    )
    assert (found["length"], found["truncated"]) == (1.0, 1.0)
