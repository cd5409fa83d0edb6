"""Specs of generation, rewards and rollouts. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from llmexp.config.spec import Mistake, Spec, setting


@dataclasses.dataclass(kw_only=True)
class SamplingSpec(Spec):
    """How a completion is drawn from a model."""

    builds: ClassVar[str] = "llmexp.rollout.sampling:Sampling"

    temperature: float = setting("Divides the logits; 0 takes the likeliest token.", default=1.0, ge=0)
    top_k: int = setting(
        "Keep the k likeliest tokens; 0, or more than there are, keeps all.", default=0, ge=0
    )
    top_p: float = setting(
        "Keep the likeliest tokens up to the one that crosses this mass; 1 keeps all.",
        default=1.0,
        ge=0,
        le=1,
    )
    min_p: float = setting(
        "Drop tokens below this share of the likeliest one's probability; 0 drops none.",
        default=0.0,
        ge=0,
        le=1,
    )
    max_new_tokens: int = setting("Longest completion.", default=256, gt=0, unit="tokens")


@dataclasses.dataclass(kw_only=True)
class RewardSpec(Spec):
    """Base of all rewards: what is built is called as ``reward(record, completion)`` and gives a number."""


@dataclasses.dataclass(kw_only=True)
class ExactAnswerSpec(RewardSpec):
    """1 when the completion is the record's answer, else 0."""

    builds: ClassVar[str] = "llmexp.rollout.rewards.exact_answer:ExactAnswer"

    tag: str = setting(
        "Read the answer inside <tag>…</tag>, which must occur exactly once; empty: the whole completion.",
        default="",
    )


@dataclasses.dataclass(kw_only=True)
class FormatSpec(RewardSpec):
    """1 when the completion is exactly the given tags, each once, in order, with something in each."""

    builds: ClassVar[str] = "llmexp.rollout.rewards.format:Format"

    tags: list[str] = setting("Tag names in their order.", default=["think", "answer"])

    def check(self) -> Iterator[Mistake]:
        """There is a tag, and none is named twice."""
        if not self.tags or len(set(self.tags)) < len(self.tags) or "" in self.tags:
            problem = f"tags={self.tags} must be different names, at least one"
            yield Mistake("tags", problem, "tags=[think,answer]")


@dataclasses.dataclass(kw_only=True)
class WeightedSumSpec(RewardSpec):
    """Several rewards, each times its weight, added."""

    builds: ClassVar[str] = "llmexp.rollout.rewards.weighted_sum:WeightedSum"

    parts: dict[str, RewardSpec] = setting("Rewards by name.")
    weights: dict[str, float] = setting("Weight of each part, by the same names.")

    def check(self) -> Iterator[Mistake]:
        """Each part has a weight, each weight a part."""
        for name in sorted(set(self.parts) ^ set(self.weights)):
            lacks, has = ("weights", "parts") if name in self.parts else ("parts", "weights")
            yield Mistake(lacks, f"{name!r} is in {has} but not in {lacks}", f"give {lacks}.{name}")

    def build(self, **runtime: Any) -> Any:
        """The sum over built parts."""
        from llmexp.config.spec import target

        parts = {name: part.build() for name, part in self.parts.items()}
        return target(self.builds)(parts=parts, weights=self.weights, **runtime)


@dataclasses.dataclass(kw_only=True)
class RolloutSpec(Spec):
    """How completions to learn from are sampled.

    Any token can be drawn: cutting off the unlikely ones would make the ratio of policies wrong. One
    optimizer step learns from ``trainer.global_batch`` completions of global_batch / group_size prompts.
    """

    builds: ClassVar[str] = "llmexp.rollout.source:RolloutSource"

    group_size: int = setting("Completions of one prompt, compared with each other.", default=8, ge=2)
    temperature: float = setting(
        "Divides the logits, in sampling and in learning alike.", default=1.0, ge=0.01
    )
    max_new_tokens: int = setting("Longest completion.", default=64, gt=0, unit="tokens")
    generate_batch: int = setting(
        "Completions generated at a time on one rank.", default=512, ge=1, unit="completions", result=False
    )
    drop_equal_groups: bool = setting(
        "Leave groups of equal rewards out: they teach nothing, but cost time and count in the mean.",
        default=False,
    )

    def check_batch(self, global_batch: int, world: int = 1) -> Iterator[Mistake]:
        """A global batch is whole groups, and the same number on each of ``world`` ranks."""
        if global_batch % (self.group_size * world):
            on = f" on each of {world} ranks" if world > 1 else ""
            yield Mistake(
                "group_size",
                f"trainer.global_batch={global_batch} is not whole groups of {self.group_size}{on}",
                f"use a multiple of {self.group_size * world} for trainer.global_batch",
            )
