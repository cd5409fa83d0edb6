"""Rollouts: the batches that a policy learns from, sampled from itself at each optimizer step.

Shapes: rows = completions of this rank in one step, a group's side by side; seq = the longest prompt and
completion less 1. Step ``i`` is a pure function of the policy's weights, the seed and ``i``, so the
only position that a checkpoint needs is the step itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llmexp.data.batch import Batch
from llmexp.model.decoder import Decoder
from llmexp.objective.grpo import GRPO, token_logprobs
from llmexp.rollout.engine import Completions, completion_texts, generate
from llmexp.rollout.prompts import PromptOrder, prompt_ids
from llmexp.rollout.rewards.reward import Reward
from llmexp.rollout.sampling import Sampling, completion_key


@dataclass(frozen=True)
class Sample:
    """One completion as a person reads it."""

    record: dict[str, Any]
    """The prompt."""
    text: str
    """The completion without special tokens."""
    reward: float


def _alone(values: list[float]) -> list[float]:
    """The sums over the ranks where there is one."""
    return values


class RolloutSource:
    """Asked for step after step by the training loop; answers with completions of the current policy."""

    def __init__(
        self,
        *,
        group_size: int,
        temperature: float,
        max_new_tokens: int,
        generate_batch: int,
        drop_equal_groups: bool,
        model: Decoder,
        tokenizer: Any,
        records: Sequence[dict[str, Any]],
        reward: Reward,
        objective: GRPO,
        seed: int,
        global_batch: int,
        micro_batch: int | None = None,
        total: Callable[[list[float]], list[float]] = _alone,
        reference: Decoder | None = None,
        context_length: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """The first five are :class:`llmexp.rollout.config.RolloutSpec`'s; at run time are given:

        Args:
            model: the policy, the object that is trained.
            tokenizer: reads prompts and writes completions as text.
            records: prompts: ``messages`` and what the reward reads.
            reward: scores the text of a completion.
            objective: turns rewards into advantages and says whether a reference is needed.
            seed: of the prompts' order and of all completions.
            global_batch: completions of one step over all ranks.
            micro_batch: completions of one forward pass; None: all of this rank's.
            total: sums each of some numbers over the ranks.
            reference: the frozen model that the objective keeps near to.
            context_length: positions that the model covers.
            rank, world: this data-parallel rank and how many there are.

        Raises:
            ValueError: the batch is not whole groups on every rank, a reference is missing, there are
                no prompts, or a record is no prompt or leaves no room for a completion.
        """
        if global_batch % (group_size * world):
            raise ValueError(
                f"{global_batch} completions are not whole groups of {group_size} on {world} ranks"
            )
        if objective.needs_reference and reference is None:
            raise ValueError("the objective has beta above 0 and needs a reference model")
        self.model, self.reference = model, reference
        self.tokenizer, self.reward, self.objective = tokenizer, reward, objective
        self.records, self.seed, self.group_size = records, seed, group_size
        self.sampling = Sampling(temperature=temperature, max_new_tokens=max_new_tokens)
        self.generate_batch, self.context_length = generate_batch, context_length
        self.drop_equal_groups = drop_equal_groups
        self.prompts_per_step, self.rank, self.world = global_batch // group_size, rank, world
        self.micro_batch = micro_batch or global_batch // world
        self.total = total
        longest = None if context_length is None else context_length - 1
        self._prompts = [prompt_ids(tokenizer, record, longest=longest) for record in records]
        self._order = PromptOrder(len(records), seed)
        self.longest = max(map(len, self._prompts)) + max_new_tokens
        """Tokens of the longest row there can be."""
        self.samples: list[Sample] = []
        """The last step's completions on this rank."""
        self.figures: dict[str, float] = {}
        """Of the last step's completions on all ranks."""

    def step(self, step: int) -> list[Batch]:
        """This rank's micro-batches of optimizer step ``step`` (from 0), sampled now from the model.

        Called under the autocast of training, or the policy that samples is not the one that learns.

        Raises:
            ValueError: a reward is not finite or cannot read its record.
            FloatingPointError: the policy's logits are not finite.
        """
        local = self.prompts_per_step // self.world
        start = step * self.prompts_per_step + self.rank * local
        numbers = range(start, start + local)
        chosen = [self._order(number) for number in numbers for _ in range(self.group_size)]
        keys = [completion_key(self.seed, number, k) for number in numbers for k in range(self.group_size)]
        completions = self._generate(chosen, keys)
        rewards = self._score(chosen, completions)
        groups = rewards.view(local, self.group_size)
        advantages = self.objective.advantages(groups).flatten()
        self.figures = rollout_metrics(completions, groups, self.total)
        prompts = [self._prompts[i] for i in chosen]
        batches = self._batches(prompts, completions, advantages, self._learned_from(groups))
        for batch in batches:
            batch.sample_ids = [start * self.group_size + row for row in batch.sample_ids]
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the step says which prompts come next."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave.

        Raises:
            ValueError: ``state`` is of another kind of source.
        """
        if state:
            raise ValueError(f"rollouts keep no position, but the checkpoint holds {sorted(state)}")

    def _generate(self, chosen: list[int], keys: list[int]) -> Completions:
        return generate(
            self.model,
            [self._prompts[i] for i in chosen],
            self.sampling,
            keys,
            self.tokenizer.end_ids,
            batch_size=self.generate_batch,
            context_length=self.context_length,
            vocab_size=self.tokenizer.vocab_size,
        )

    def _score(self, chosen: list[int], completions: Completions) -> Tensor:
        self.samples = []
        texts = completion_texts(self.tokenizer, completions)
        for index, text in zip(chosen, texts, strict=True):
            value = float(self.reward(self.records[index], text))
            if not math.isfinite(value):
                name = self.records[index].get("id", index)
                raise ValueError(f"the reward of a completion of record {name} is {value}: {text[:200]!r}")
            self.samples.append(Sample(self.records[index], text, value))
        return torch.tensor([sample.reward for sample in self.samples], dtype=torch.float64)

    def _learned_from(self, groups: Tensor) -> list[int]:
        """Rows that become batches: all, or those of groups (groups, group_size) whose rewards differ."""
        rows = torch.arange(groups.numel()).view(groups.shape)
        if self.drop_equal_groups:
            rows = rows[groups.amax(-1) != groups.amin(-1)]
        return rows.flatten().tolist()

    def _batches(
        self, prompts: list[list[int]], completions: Completions, advantages: Tensor, learned: list[int]
    ) -> list[Batch]:
        """Rows of like length together, so that little is padding; ``sample_ids`` are the rows.

        Where there is nothing to learn, one row in which nothing counts: ranks wait for each other.
        """
        lengths = completions.lengths.tolist()
        order = sorted(learned or [0], key=lambda row: len(prompts[row]) + lengths[row])
        batches = []
        for start in range(0, len(order), self.micro_batch):
            rows = order[start : start + self.micro_batch]
            batch = to_batch([prompts[row] for row in rows], completions.select(rows))
            device = batch.ids.device
            batch.extras["advantages"] = advantages[rows].to(device)
            batch.mask &= bool(learned)
            batch.sample_ids = rows
            batch.name_documents = self._names
            if self.reference is not None and self.objective.needs_reference:
                batch.extras["ref_logprobs"] = self._reference_logprobs(self.reference, batch)
            batches.append(batch)
        return batches

    def _names(self, sample_ids: list[int]) -> list[str]:
        prompts = dict.fromkeys(self._order(sample // self.group_size) for sample in sample_ids)
        return [str(self.records[i].get("id", i)) for i in prompts]

    @torch.no_grad()
    def _reference_logprobs(self, reference: Decoder, batch: Batch) -> Tensor:
        """(batch, seq) float32: the reference's log-probabilities of the targets that count, else 0."""
        reference.to(batch.ids.device).eval()
        hidden = reference.hidden(batch.ids, positions=batch.positions, doc_ids=batch.doc_ids)
        found, _ = token_logprobs(
            hidden[batch.mask],
            reference.head_weight,
            batch.targets[batch.mask],
            self.sampling.temperature,
        )
        return torch.zeros(batch.ids.shape, device=found.device).masked_scatter(batch.mask, found)


def to_batch(prompts: Sequence[Sequence[int]], completions: Completions) -> Batch:
    """Prompts and their completions as rows padded on the right; only completion tokens count.

    ``extras`` hold ``old_logprobs`` (batch, seq) float32, 0 where nothing counts, and ``truncated``
    (batch,) bool.
    """
    device, n = completions.ids.device, len(prompts)
    lengths = completions.lengths.tolist()
    starts = torch.tensor([len(prompt) for prompt in prompts], device=device)
    width = max(len(prompt) + length for prompt, length in zip(prompts, lengths, strict=True))
    whole = torch.zeros(n, width, dtype=torch.int64)
    for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        answer = completions.ids[row, :length].tolist()
        whole[row, : len(prompt) + length] = torch.tensor([*prompt, *answer])
    whole = whole.to(device)
    place = torch.arange(width - 1, device=device).expand(n, -1)
    end = (starts + completions.lengths)[:, None] - 1
    mask = (place >= starts[:, None] - 1) & (place < end)
    old = torch.zeros(n, width - 1, device=device).masked_scatter(
        mask, completions.logprobs[completions.mask]
    )
    real = place < end
    return Batch(
        ids=torch.where(real, whole[:, :-1], 0),
        targets=torch.where(real, whole[:, 1:], 0),
        mask=mask,
        positions=torch.where(real, place, 0),
        doc_ids=torch.where(real, 0, -1).to(torch.int32),
        extras={"old_logprobs": old, "truncated": ~completions.finished},
    )


def rollout_metrics(
    completions: Completions, rewards: Tensor, total: Callable[[list[float]], list[float]] = _alone
) -> dict[str, float]:
    """Means over the completions of all ranks, and the share of groups whose rewards are all equal.

    ``rewards`` (groups, group_size). Lengths are in tokens, the end token and truncated completions included.
    ``total`` sums over the ranks.
    """
    equal = rewards.amax(-1) == rewards.amin(-1)
    sums = [
        float(rewards.numel()),
        float(rewards.sum()),
        float(rewards.square().sum()),
        float(completions.lengths.double().sum()),
        float((~completions.finished).double().sum()),
        float(len(rewards)),
        float(equal.double().sum()),
    ]
    n, reward, squared, length, truncated, groups, equal_groups = total(sums)
    return {
        "rl/reward": reward / n,
        "rl/reward_std": math.sqrt(max(0.0, squared / n - (reward / n) ** 2)),
        "rl/length": length / n,
        "rl/truncated": truncated / n,
        "rl/zero_variance_groups": equal_groups / groups,
    }
