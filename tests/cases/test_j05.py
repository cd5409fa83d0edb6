"""J05: repeated or nested tags still earn the format reward, or correct multi-line answers earn none."""

import json
import time
from pathlib import Path

import pytest

from llmexp.rollout.config import ExactAnswerSpec, FormatSpec

LINES = (Path(__file__).parent / "inputs/j05_format.jsonl").read_text().splitlines()
CASES = [json.loads(line) for line in LINES]
OPENED_AGAIN = "<think>" + "<answer>a" * 130_000


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"])[:40])
def test_the_format_reward_wants_each_tag_once_in_order_and_nothing_else(case: dict) -> None:
    assert FormatSpec().build()({}, case["text"]) == case["format_reward"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"])[:40])
def test_the_answer_is_read_from_the_one_answer_alone(case: dict) -> None:
    once = case["text"].count("<answer>") == case["text"].count("</answer>") == 1
    right = once and "<answer>4<" in case["text"]
    assert ExactAnswerSpec(tag="answer").build()({"answer": "4"}, case["text"]) == right


@pytest.mark.parametrize("text", ["1" * 1_000_000, OPENED_AGAIN, "<" * 1_000_000, " " * 1_000_000])
def test_a_completion_of_a_megabyte_is_scored_within_a_second(text: str) -> None:
    start = time.perf_counter()
    for spec in (ExactAnswerSpec(), ExactAnswerSpec(tag="answer"), FormatSpec()):
        spec.build()({"answer": "4"}, text)
    assert time.perf_counter() - start < 1
