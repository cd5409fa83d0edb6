"""GRPO: each formula against its closed form, its gradient against finite differences."""

import math
import sys
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmexp.data.batch import Batch
from llmexp.model.config import ModelSpec
from llmexp.objective.grpo import GRPO, LASTING, clipped_surrogate, group_advantages, kl_k3, token_logprobs

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

import tiny_training as tiny

CASES = Path(__file__).parents[1] / "cases/inputs"
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "ffn_dim": 32, "vocab_size": 12, "max_seq_len": 32}
DEFAULTS = {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.0, "mask_truncated": False, "scale_by_std": True}


def grpo(**changes: object) -> GRPO:
    return GRPO(**{**DEFAULTS, "temperature": 1.0, **changes})  # type: ignore[arg-type]


@pytest.fixture
def model() -> torch.nn.Module:
    return ModelSpec(**SIZES).build(seed=0)  # type: ignore[arg-type]


def batch_of(model: torch.nn.Module, temperature: float = 1.0, rows: int = 4, seq: int = 7) -> Batch:
    """Random rows whose last four targets count, with the log-probabilities of ``model`` itself."""
    ids = torch.randint(0, 12, (rows, seq + 1), generator=torch.Generator().manual_seed(2))
    mask = torch.zeros(rows, seq, dtype=torch.bool)
    mask[:, 3:] = True
    with torch.no_grad():
        logprobs = (model(ids[:, :-1]) / temperature).log_softmax(-1)
    own = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    return Batch(
        ids=ids[:, :-1],
        targets=ids[:, 1:],
        mask=mask,
        positions=torch.arange(seq).expand(rows, seq),
        doc_ids=torch.zeros(rows, seq, dtype=torch.int32),
        extras={
            "old_logprobs": own,
            "ref_logprobs": own.clone(),
            "advantages": torch.tensor([1.0, -1.0, 0.5, 0.0])[:rows],
            "truncated": torch.zeros(rows, dtype=torch.bool),
        },
    )


def gradients(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_advantages_are_rewards_less_the_mean_over_the_deviation() -> None:
    expected = torch.tensor([[1.0, -1.0, 1.0, -1.0], [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]])
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert torch.allclose(group_advantages(rewards, scale_by_std=True), expected)


def test_advantages_without_scaling_are_rewards_less_the_mean() -> None:
    rewards = torch.tensor([[3.0, 1.0, 1.0, 1.0]])
    assert group_advantages(rewards, scale_by_std=False).tolist() == [[1.5, -0.5, -0.5, -0.5]]


@given(st.floats(-1e6, 1e6), st.integers(1, 9), st.booleans())
def test_a_group_of_equal_rewards_is_exactly_zero(reward: float, size: int, scale: bool) -> None:
    advantages = group_advantages(torch.full((1, size), reward, dtype=torch.float64), scale_by_std=scale)
    assert bool((advantages == 0).all())


def test_a_reward_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages(torch.tensor([[1.0, float("nan")]]), scale_by_std=True)


@pytest.mark.parametrize(
    "ratio, advantage, loss, held",
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -1.28 * 2, True),
        (0.5, 2.0, -1.0, False),
        (1.5, -2.0, 3.0, False),
        (0.5, -2.0, 1.6, True),
    ],
)
def test_the_surrogate_is_the_smaller_of_free_and_clipped(
    ratio: float, advantage: float, loss: float, held: bool
) -> None:
    new = torch.tensor([math.log(ratio)], requires_grad=True)
    value, got, clipped = clipped_surrogate(new, torch.zeros(1), torch.tensor([advantage]), 0.2, 0.28)
    value.sum().backward()
    assert value.item() == pytest.approx(loss, rel=1e-6)
    assert (got.item(), bool(clipped)) == (pytest.approx(ratio), held)
    assert new.grad.item() == pytest.approx(0.0 if held else -ratio * advantage, rel=1e-6)


@pytest.mark.parametrize("log_ratio", [0.0, 3.0, 200.0])
def test_an_advantage_of_zero_gives_a_loss_and_gradient_of_exactly_zero(log_ratio: float) -> None:
    new = torch.tensor([log_ratio], requires_grad=True)
    value, _, _ = clipped_surrogate(new, torch.zeros(1), torch.zeros(1), 0.2, 0.2)
    value.sum().backward()
    assert (value.item(), new.grad.item()) == (0.0, 0.0)


@given(st.floats(-30, 0, width=32), st.floats(-30, 0, width=32))
def test_k3_is_never_negative(logprob: float, reference: float) -> None:
    assert kl_k3(torch.tensor(logprob), torch.tensor(reference)).item() >= 0


def test_k3_averages_to_the_divergence() -> None:
    policy, reference = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.2, 0.5, 0.3])
    exact = (policy * (policy / reference).log()).sum()
    assert torch.allclose((policy * kl_k3(policy.log(), reference.log())).sum(), exact, atol=1e-6)


def test_policy_equal_to_reference_has_no_divergence_and_no_gradient(model: torch.nn.Module) -> None:
    batch = batch_of(model)
    batch.extras["advantages"] = torch.zeros(4)
    loss = grpo(beta=0.5)(model, batch)
    loss.total.backward()
    assert loss.metrics["rl/kl"].item() == pytest.approx(0, abs=1e-9)
    assert gradients(model).abs().max().item() < 1e-5


@pytest.mark.parametrize("at_once", [24, 1 << 20])
def test_log_probabilities_and_entropy_equal_torch(at_once: int) -> None:
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(9, 8, generator=g), torch.randn(12, 8, generator=g)
    targets = torch.randint(0, 12, (9,), generator=g)
    p = torch.distributions.Categorical(logits=hidden @ weight.T / 0.7)
    got, entropy = token_logprobs(hidden, weight, targets, 0.7, logits_at_once=at_once)
    assert torch.allclose(got, p.log_prob(targets), atol=1e-5)
    assert torch.allclose(entropy, p.entropy(), atol=1e-5)


def test_pieces_give_the_gradient_of_the_whole() -> None:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(9, 8, generator=g, dtype=torch.float64)
    weight = torch.randn(12, 8, generator=g, dtype=torch.float64)
    targets = torch.randint(0, 12, (9,), generator=g)
    found = []
    for at_once in (24, 1 << 20):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        token_logprobs(h, w, targets, 0.7, logits_at_once=at_once)[0].square().sum().backward()
        found.append(torch.cat([h.grad.flatten(), w.grad.flatten()]))
    assert torch.allclose(*found)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_the_first_ratio_is_one_at_any_temperature(model: torch.nn.Module, temperature: float) -> None:
    loss = grpo(temperature=temperature)(model, batch_of(model, temperature))
    assert loss.metrics["rl/ratio_mean"].item() / 16 == pytest.approx(1, abs=1e-5)


def test_the_gradient_equals_finite_differences(model: torch.nn.Module) -> None:
    model = model.double()
    batch = batch_of(model)
    noise = torch.Generator().manual_seed(1)
    for name in ("old_logprobs", "ref_logprobs"):
        batch.extras[name] += 0.3 * torch.randn(4, 7, generator=noise, dtype=torch.float64)
    # The objective computes logits in float32; a wide step keeps their rounding out of the quotient.
    objective, weight, step = grpo(beta=0.3), model.blocks[0].attention.v.weight, 1e-2
    objective(model, batch).total.backward()
    for index in [(0, 0), (3, 5), (15, 15)]:
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[index] += sign * step
                values.append(objective(model, batch).total.item())
                weight[index] -= sign * step
        assert weight.grad[index].item() == pytest.approx(
            (values[0] - values[1]) / (2 * step), rel=0.02, abs=2e-4
        )


def test_on_its_own_samples_the_gradient_is_the_policy_gradient(model: torch.nn.Module) -> None:
    batch = batch_of(model)
    grpo()(model, batch).total.backward()
    ours = gradients(model).clone()
    model.zero_grad()
    logprobs = model(batch.ids).log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    (-(batch.extras["advantages"][:, None] * logprobs) * batch.mask).sum().backward()
    assert torch.allclose(ours, gradients(model), atol=1e-5)


def test_micro_batches_add_up_to_the_whole_batch(model: torch.nn.Module) -> None:
    batch, objective = batch_of(model), grpo(beta=0.1)
    parts = [objective(model, part).total for part in tiny.cut(batch, 3)]
    assert torch.allclose(objective(model, batch).total, torch.stack(parts).sum(), atol=1e-6)


def test_what_lies_behind_the_counted_tokens_has_no_influence(model: torch.nn.Module) -> None:
    batch, objective = batch_of(model), grpo()
    batch.mask[:, 5:] = False
    before = objective(model, batch).total.item()
    batch.ids[:, 6:] = 0
    batch.targets[:, 5:] = 3
    batch.extras["old_logprobs"][:, 5:] = 7
    assert objective(model, batch).total.item() == before


def test_truncated_rows_leave_sum_divisor_and_metrics_alike(model: torch.nn.Module) -> None:
    batch, objective = batch_of(model), grpo(mask_truncated=True)
    batch.extras["truncated"] = torch.tensor([False, True, False, True])
    whole = objective(model, batch)
    rest = [part for i, part in enumerate(tiny.cut(batch, 4)) if i in (0, 2)]
    assert objective.count(batch).item() == 8
    assert whole.total.item() == pytest.approx(
        sum(objective(model, part).total.item() for part in rest), abs=1e-6
    )
    assert whole.metrics["rl/ratio_mean"].item() == pytest.approx(8, abs=1e-4)


def test_a_lasting_negative_divergence_gives_one_warning(model: torch.nn.Module) -> None:
    batch, objective = batch_of(model), grpo(beta=0.1)
    batch.extras["ref_logprobs"] += 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(LASTING - 1):
            objective(model, batch)
    with pytest.warns(RuntimeWarning, match="negative"):
        objective(model, batch)


def test_the_count_of_negative_divergences_survives_a_checkpoint(model: torch.nn.Module) -> None:
    batch, first, second = batch_of(model), grpo(beta=0.1), grpo(beta=0.1)
    batch.extras["ref_logprobs"] += 0.5
    for _ in range(LASTING - 1):
        first(model, batch)
    second.load_state_dict(first.state_dict())
    with pytest.warns(RuntimeWarning, match="negative"):
        second(model, batch)
