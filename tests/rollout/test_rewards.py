"""Rewards: what earns them and what does not."""

import pytest

from llmexp.rollout.config import ExactAnswerSpec, FormatSpec, WeightedSumSpec


@pytest.mark.parametrize(
    "text",
    [
        "<think><answer>4</answer></think>",
        "<answer>4</answer><think>a</think>",
        "<think>a</think>so<answer>4</answer>",
        "<think>a</think><answer>4</answer>!",
        "</think>a<think><answer>4</answer>",
        "<think> \n</think><answer>4</answer>",
        "",
    ],
)
def test_a_broken_form_earns_nothing(text: str) -> None:
    assert FormatSpec().build()({}, text) == 0.0


@pytest.mark.parametrize("text", ["42", " 42\n", "42.0", "+42"])
def test_every_spelling_of_the_number_is_right(text: str) -> None:
    assert ExactAnswerSpec().build()({"answer": "42"}, text) == 1.0


WRONG = ["", "-42", "41 42", "42 43", "4 2", "x42", "0x2a", "42.", "٤٢", "4_2", "1e9", "042"]


@pytest.mark.parametrize("text", WRONG)
def test_anything_but_the_number_alone_is_wrong(text: str) -> None:
    assert ExactAnswerSpec().build()({"answer": "42"}, text) == 0.0


def test_an_answer_that_is_no_number_is_compared_as_text() -> None:
    reward = ExactAnswerSpec().build()
    assert (reward({"answer": "Paris"}, " Paris "), reward({"answer": "Paris"}, "paris")) == (1.0, 0.0)


def test_the_answer_is_read_from_the_one_answer_tag() -> None:
    reward = ExactAnswerSpec(tag="answer").build()
    once, twice = "<think>3</think><answer>4</answer>", "<answer>3</answer><answer>4</answer>"
    assert [reward({"answer": "4"}, text) for text in (once, twice, "4")] == [1.0, 0.0, 0.0]


def test_digits_from_the_lowest_up_are_not_compared_as_a_number() -> None:
    reward = ExactAnswerSpec().build()
    assert [reward({"answer": "07"}, text) for text in ("07", "7")] == [1.0, 0.0]


def test_a_record_without_an_answer_is_named() -> None:
    with pytest.raises(ValueError, match="sum-7"):
        ExactAnswerSpec().build()({"id": "sum-7"}, "4")


def test_parts_are_added_with_their_weights() -> None:
    parts = {"answer": ExactAnswerSpec(tag="answer"), "format": FormatSpec()}
    spec = WeightedSumSpec(parts=parts, weights={"answer": 1.0, "format": 0.2})
    assert list(spec.check()) == []
    assert spec.build()({"answer": "4"}, "<think>a</think><answer>5</answer>") == pytest.approx(0.2)


def test_a_part_without_a_weight_is_a_mistake() -> None:
    spec = WeightedSumSpec(parts={"answer": ExactAnswerSpec()}, weights={"format": 1.0})
    assert [mistake.path for mistake in spec.check()] == ["weights", "parts"]
