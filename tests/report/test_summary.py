"""The summary on the terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from llmexp.report.data import ReportData, StageRow
from llmexp.report.summary import NextCommand, headline, print_summary


def printed(data: ReportData, width: int = 110, **keywords) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    print_summary(data, console, **keywords)
    return console.export_text()


@pytest.mark.parametrize(
    "shown",
    [
        "quickstart is ready",
        "1.556",
        "42.8 % under",
        "4.7 % under",
        "xz -9",
        "56.5 %",
        "What is 34 + 57?",
        "91 ✓",
        "Return a list of",
        "outputs/report.html",
        "llmexp chat",
        "7 min 21 s",
    ],
)
def test_the_summary_shows(data: ReportData, shown: str):
    commands = [NextCommand("Talk to it", "llmexp chat")]
    assert shown in printed(data, report=Path("outputs/report.html"), next_commands=commands)


def test_square_brackets_of_a_generation_are_no_markup(data: ReportData):
    data.evaluation["samples"][0]["completions"]["grpo"] = "[bold]x[/bold] [/] a[0] \\"
    assert "[bold]x[/bold] [/] a[0]" in printed(data)


def test_escape_sequences_of_a_generation_do_not_reach_the_terminal(data: ReportData):
    data.evaluation["samples"][0]["completions"]["grpo"] = "\x1b[31mred"
    assert "\x1b[31m" not in printed(data)


def test_text_that_got_worse_for_better_answers_is_explained(data: ReportData):
    assert "trains answers alone" not in printed(data)
    table = data.evaluation["table"]
    table["pretrain"]["assistant_loss"], table["grpo"]["assistant_loss"] = 8.0, 2.0
    assert "What follows pretrain trains answers alone" in printed(data)
    table["grpo"]["bits_per_byte"] = 1.5
    assert "trains answers alone" not in printed(data)


def test_a_run_without_evaluation_has_a_summary():
    assert "quickstart is ready" in printed(ReportData(title="quickstart"))


@pytest.mark.parametrize(
    "stop_when, loss, words", [(None, 2.5, "loss 2.5"), ("val_loss_rises", 2.0, "loss 2.0")]
)
def test_training_without_evaluation_shows_what_its_weights_cost(stop_when, loss, words):
    row = StageRow(
        name="sft",
        stage="sft",
        summary={"best_step": 20},
        config={"trainer": {"stop_when": stop_when}},
        curves={"val/loss": [[10, 3.0], [20, 2.0], [30, 2.5]], "train/loss": [[30, 1.0]]},
    )
    data = ReportData(title="sft", stages=[row])
    assert headline(data) == {"val/loss": loss}
    assert f"Held out after sft: {words}" in printed(data)
    assert "1 stage, 0 found" in printed(ReportData(title="sft", stages=[row], seconds=3.0))


def test_the_headline_of_an_evaluated_run_is_its_last_model(data: ReportData):
    assert headline(data)["exact_match"] == data.evaluation["table"]["grpo"]["exact_match"]


def test_a_failed_run_is_not_called_ready(data: ReportData):
    data.status = "failed"
    data.notes = ["sft failed: loss is NaN at step 12"]
    text = printed(data)
    assert "quickstart failed" in text
    assert "loss is NaN at step 12" in text


def test_a_narrow_terminal_still_gets_the_commands_whole(data: ReportData):
    text = printed(data, width=60, next_commands=[NextCommand("Chat", "llmexp chat 22-15-20")])
    assert "llmexp chat 22-15-20" in text
