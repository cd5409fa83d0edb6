"""Rollouts as a source of batches: what they hold; a step depends on weights, seed and step alone."""

import copy
from typing import Any

import pytest
import torch

from llmexp.objective.grpo import GRPO
from llmexp.rollout.config import RolloutSpec
from llmexp.rollout.engine import Completions, ended
from llmexp.rollout.prompts import PromptOrder, prompt_ids
from llmexp.rollout.source import RolloutSource, to_batch

RECORDS = [
    {
        "id": f"sum-{i}",
        "messages": [{"role": "user", "content": "1+" + str(i) * (1 + i % 3)}],
        "answer": str(i),
    }
    for i in range(6)
]
SPEC = RolloutSpec(group_size=4, temperature=0.8, max_new_tokens=6)


def grpo(**changes: Any) -> GRPO:
    fields = {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.0, "mask_truncated": False, "scale_by_std": True}
    return GRPO(**{**fields, "temperature": SPEC.temperature, **changes})  # type: ignore[arg-type]


def even_bytes(_record: dict, completion: str) -> float:
    return sum(ord(c) % 2 == 0 for c in completion) / max(1, len(completion))


def source(model: torch.nn.Module, tokenizer: Any, **changes: Any) -> RolloutSource:
    runtime = {"records": RECORDS, "reward": even_bytes, "objective": grpo(), "seed": 3, "global_batch": 8}
    return SPEC.build(**{"model": model, "tokenizer": tokenizer, **runtime, **changes})


def rows_of(batches: list) -> dict[int, tuple]:
    """Each row by its sample id, without its padding."""
    found = {}
    for batch in batches:
        for row, sample in enumerate(batch.sample_ids):
            real = batch.doc_ids[row] == 0
            advantage = batch.extras["advantages"][row].item()
            found[sample] = (
                batch.ids[row][real].tolist(),
                batch.targets[row][batch.mask[row]].tolist(),
                advantage,
            )
    return found


def test_targets_that_count_are_the_completion_with_its_end_token() -> None:
    ids = torch.tensor([[5, 7, 0, 0], [5, 6, 2, 0], [5, 6, 8, 9]])
    done = Completions(ids, torch.zeros(3, 4), *ended(ids, torch.tensor([2, 7])))
    batch = to_batch([[3, 4], [3], [9, 8, 7]], done)
    assert [batch.targets[i][batch.mask[i]].tolist() for i in range(3)] == [[5, 7], [5, 6, 2], [5, 6, 8, 9]]
    assert batch.ids[0].tolist() == [3, 4, 5, 0, 0, 0]
    assert batch.doc_ids[0].tolist() == [0, 0, 0, -1, -1, -1]
    assert batch.positions[0].tolist() == [0, 1, 2, 0, 0, 0]


def test_the_first_ratio_is_one(model: torch.nn.Module, tokenizer: Any) -> None:
    objective = grpo()
    for batch in source(model, tokenizer, objective=objective, micro_batch=4).step(0):
        loss = objective(model, batch)
        n = objective.count(batch).item()
        assert loss.metrics["rl/ratio_mean"].item() / n == pytest.approx(1, abs=1e-4)
        new = (model(batch.ids, batch.positions, batch.doc_ids) / 0.8).log_softmax(-1)
        new = new.gather(-1, batch.targets[..., None])[..., 0]
        assert torch.allclose(new[batch.mask], batch.extras["old_logprobs"][batch.mask], atol=1e-4)


def test_a_step_is_the_same_whatever_was_asked_before(model: torch.nn.Module, tokenizer: Any) -> None:
    going, fresh = source(model, tokenizer), source(model, tokenizer)
    for step in range(3):
        going.step(step)
    assert rows_of(going.step(5)) == rows_of(fresh.step(5))


def test_another_seed_gives_other_completions(model: torch.nn.Module, tokenizer: Any) -> None:
    assert rows_of(source(model, tokenizer).step(0)) != rows_of(source(model, tokenizer, seed=4).step(0))


@pytest.mark.parametrize("cut", [{"micro_batch": 3}, {"micro_batch": 1}, {"generate_batch": 1}])
def test_cutting_the_batch_changes_no_row(model: torch.nn.Module, tokenizer: Any, cut: dict) -> None:
    whole = source(model, tokenizer).step(2)
    generate_batch = cut.pop("generate_batch", None)
    other = source(model, tokenizer, **cut)
    other.generate_batch = generate_batch or other.generate_batch
    assert rows_of(other.step(2)) == rows_of(whole)


def test_ranks_share_the_completions_of_one_process(model: torch.nn.Module, tokenizer: Any) -> None:
    alone = rows_of(source(model, tokenizer).step(1))
    parts = [rows_of(source(model, tokenizer, rank=rank, world=2).step(1)) for rank in range(2)]
    assert parts[0].keys().isdisjoint(parts[1])
    assert parts[0] | parts[1] == alone


def test_groups_of_equal_rewards_have_no_advantage_and_are_counted(
    model: torch.nn.Module, tokenizer: Any
) -> None:
    equal = source(model, tokenizer, reward=lambda _record, _completion: 0.1)
    (batch,) = equal.step(4)
    assert bool((batch.extras["advantages"] == 0).all())
    assert equal.figures["rl/zero_variance_groups"] == 1.0
    assert equal.figures["rl/reward"] == pytest.approx(0.1)


def test_dropped_groups_leave_the_rows_of_the_others(model: torch.nn.Module, tokenizer: Any) -> None:
    def reward(record: dict, completion: str) -> float:
        return even_bytes(record, completion) if int(record["answer"]) % 2 else 0.1

    runtime = {"model": model, "tokenizer": tokenizer, "reward": reward, "objective": grpo(), "seed": 3}
    sizes = {"group_size": 4, "temperature": 0.8, "max_new_tokens": 6}
    whole, rest = (
        rows_of(
            RolloutSpec(**sizes, drop_equal_groups=drop)
            .build(records=RECORDS, global_batch=24, **runtime)
            .step(0)
        )
        for drop in (False, True)
    )
    assert rest == {sample: row for sample, row in whole.items() if row[2] != 0}
    assert 0 < len(rest) < len(whole)


def test_when_every_group_is_dropped_one_row_is_left_that_does_not_count(
    model: torch.nn.Module, tokenizer: Any
) -> None:
    rollouts = source(model, tokenizer, reward=lambda _record, _completion: 0.1)
    rollouts.drop_equal_groups = True
    (batch,) = rollouts.step(0)
    assert (len(batch), int(batch.mask.sum())) == (1, 0)


def test_rewards_read_the_record_and_text_without_special_tokens(
    model: torch.nn.Module, tokenizer: Any
) -> None:
    seen = []

    def reward(record: dict, completion: str) -> float:
        seen.append((record["id"], completion))
        return 0.0

    spec = RolloutSpec(group_size=4, max_new_tokens=60)
    runtime = {"records": RECORDS, "reward": reward, "objective": grpo(), "seed": 3, "global_batch": 24}
    rollouts = spec.build(model=model, tokenizer=tokenizer, **runtime)
    (batch,) = rollouts.step(0)
    special = torch.tensor(list(tokenizer.special_ids.values()))
    assert bool(torch.isin(batch.targets[batch.mask], special).any())
    assert len(seen) == 24
    assert not any("<|" in text for _, text in seen)
    assert {name for name, _ in seen} == {record["id"] for record in RECORDS}


def test_a_reward_that_is_not_finite_names_the_record(model: torch.nn.Module, tokenizer: Any) -> None:
    rollouts = source(model, tokenizer, reward=lambda _record, _completion: float("nan"))
    with pytest.raises(ValueError, match="sum-"):
        rollouts.step(0)


def test_the_reference_is_measured_at_the_sampling_temperature(
    model: torch.nn.Module, tokenizer: Any
) -> None:
    rollouts = source(model, tokenizer, objective=grpo(beta=0.1), reference=copy.deepcopy(model))
    (batch,) = rollouts.step(0)
    ours, theirs = batch.extras["old_logprobs"], batch.extras["ref_logprobs"]
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_a_penalty_without_a_reference_is_refused(model: torch.nn.Module, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="reference"):
        source(model, tokenizer, objective=grpo(beta=0.1))


def test_documents_are_the_records_of_the_prompts(model: torch.nn.Module, tokenizer: Any) -> None:
    (batch,) = source(model, tokenizer).step(0)
    assert len(batch.documents()) == 2
    assert set(batch.documents()) <= {record["id"] for record in RECORDS}


def test_every_prompt_comes_once_an_epoch_in_another_order() -> None:
    order = PromptOrder(50, seed=1)
    first, second = [order(n) for n in range(50)], [order(n) for n in range(50, 100)]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert [PromptOrder(50, seed=1)(n) for n in (73, 12)] == [second[23], first[12]]


@pytest.mark.parametrize(
    "record, word",
    [
        ({"id": "x"}, "messages"),
        ({"id": "x", "messages": [{"role": "assistant", "content": "4"}]}, "assistant"),
        ({"id": "x", "messages": [{"role": "user", "content": "long " * 40}]}, "room for 100"),
    ],
)
def test_a_record_that_is_no_prompt_is_named(tokenizer: Any, record: dict, word: str) -> None:
    with pytest.raises(ValueError, match=f"record x.*{word}"):
        prompt_ids(tokenizer, record, longest=100)


def test_a_batch_that_is_not_whole_groups_is_a_mistake() -> None:
    assert [mistake.path for mistake in SPEC.check_batch(10)] == ["group_size"]
    assert list(SPEC.check_batch(16, world=2)) == []
