"""``llmexp generate``: prompts in, completions out."""

from __future__ import annotations

import json

import pytest
from models_made_by_hand import always

from llmexp.cli.visible import visible

SHORT = ("--max-new-tokens", 12)


def completions(said) -> list[dict]:
    assert said.code == 0, said.err
    return said.json["completions"]


def test_a_prompt_is_completed_on_standard_output(inside):
    said = inside("generate", "last", "the model", *SHORT)
    assert said.code == 0
    assert said.out.strip()
    assert said.err == ""


def test_json_tells_prompt_completion_counts_and_why_it_ended(inside):
    found = completions(inside("generate", "last", "the model", *SHORT, "--json"))[0]
    assert list(found) == [
        "prompt", "index", "completion", "prompt_tokens", "completion_tokens", "finish_reason",
    ]  # fmt: skip
    assert found["prompt"] == "the model"
    assert found["prompt_tokens"] > 1
    assert found["completion_tokens"] <= 12
    assert found["finish_reason"] == ("length" if found["completion_tokens"] == 12 else "stop")


def test_the_streamed_text_is_that_of_json(inside):
    streamed = inside("generate", "last", "a text", *SHORT, "--seed", 3).out
    found = completions(inside("generate", "last", "a text", *SHORT, "--seed", 3, "--json"))[0]
    assert streamed == visible(found["completion"]) + "\n"


def test_more_prompts_change_no_text(inside):
    alone = completions(inside("generate", "last", "a text", *SHORT, "--json", "-n", 2))
    among = completions(inside("generate", "last", "a text", "the", "large", *SHORT, "--json", "-n", 2))
    assert among[:2] == alone
    assert len(among) == 6


def test_another_seed_gives_another_text(inside):
    one, other = (
        completions(inside("generate", "last", "a", *SHORT, "--json", "--seed", seed))[0] for seed in (1, 2)
    )
    assert one["completion"] != other["completion"]


def test_at_temperature_0_the_seed_does_not_matter(inside):
    one, other = (
        inside("generate", "last", "a", *SHORT, "--temperature", 0, "--seed", seed).out for seed in (1, 2)
    )
    assert one == other


def test_prompts_come_one_a_line_from_a_file_or_from_standard_input(inside, tmp_path):
    (tmp_path / "prompts.txt").write_text("the model\n\na list\n")
    by_file = completions(inside("generate", "last", "--file", tmp_path / "prompts.txt", *SHORT, "--json"))
    by_input = completions(inside("generate", "last", *SHORT, "--json", stdin="the model\n\na list\n"))
    assert by_file == by_input
    assert [found["prompt"] for found in by_file] == ["the model", "a list"]


def test_chat_puts_the_prompt_into_the_template(inside):
    plain, chat = (
        completions(inside("generate", "last", "hello", *SHORT, "--json", *more))[0]
        for more in ((), ("--chat",))
    )
    assert chat["prompt_tokens"] > plain["prompt_tokens"] + 4


def test_a_run_its_stage_its_fingerprint_and_its_folder_are_the_same_model(inside):
    stages = inside("show", "last", "--json").json["stages"]
    stages = list(stages.values()) if isinstance(stages, dict) else stages
    fingerprint = next(s["fingerprint"] for s in stages if s["stage"] == "sft")
    path = f"outputs/store/model/{fingerprint}"
    for reference in ("last", "last/sft", fingerprint[:10], path):
        said = inside("generate", reference, "the", *SHORT, "--json").json
        assert said["model"]["path"].endswith(path)
    other = inside("generate", "last/pretrain", "the", *SHORT, "--json").json
    assert not other["model"]["path"].endswith(path)


@pytest.mark.parametrize(
    "words, told",
    [
        (("--temperature", "-1"), "--temperature -1 is out of range: give a value at least 0"),
        (("--temperature", "nan"), "--temperature nan is out of range"),
        (("--top-p", "1.1"), "--top-p 1.1 is out of range: give a value at least 0 and at most 1"),
        (("--top-p", "-0.1"), "--top-p -0.1 is out of range"),
        (("--top-k", "-2"), "--top-k -2 is out of range"),
        (("--max-new-tokens", "0"), "--max-new-tokens 0 is out of range: give a value above 0"),
        (("-n", "0"), "-n 0 is out of range"),
        (("--top-p", "much"), "invalid float value"),
    ],
)
def test_a_flag_out_of_range_is_a_mistake(inside, words, told):
    said = inside("generate", "last", "a", *words)
    assert said.code == 2
    assert told in said.err


@pytest.mark.parametrize(
    "words, told",
    [
        (("nobody", "a"), "neither a run nor an artifact"),
        (("last/collect", "a"), "is a corpus, not a model"),
        (("last",), "there is no prompt"),
        (("last", "a", "top_k=3"), "write --top-k 3"),
        (("last", "seed=1\nimport random" * 400), "there is no room for a completion"),
        (("last", "--file", "nowhere.txt"), "--file nowhere.txt cannot be read"),
        (("last", "the model " * 400), "there is no room for a completion"),
    ],
)
def test_what_cannot_be_completed_is_a_mistake(inside, words, told):
    said = inside("generate", *words)
    assert said.code == 2
    assert told in said.err


def test_a_folder_of_a_family_that_we_lack_is_a_mistake(inside, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text(next(iter_tokenizers()))
    said = inside("generate", tmp_path, "a")
    assert said.code == 2
    assert "model_type='bert' is no family that llmexp has" in said.err


def iter_tokenizers():
    from pathlib import Path

    return (path.read_text() for path in Path("outputs/store/tokenizer").glob("*/tokenizer.json"))


def test_a_damaged_model_is_named_and_not_used(inside, tmp_path, trained):
    import shutil

    shutil.copytree(trained / "outputs" / "store", tmp_path / "store")
    weights = next((tmp_path / "store" / "model").glob("*/model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    said = inside("generate", weights.parent.name, "a", "--store", tmp_path / "store")
    assert said.code == 1
    assert "model.safetensors" in said.err


def test_control_characters_that_a_model_writes_are_shown_and_not_sent(inside, tmp_path):
    said = inside("generate", always(0x1B, tmp_path / "escape"), "a", *SHORT, "--temperature", 0)
    assert said.out == "␛" * 12 + "\n"


def test_rows_that_pad_the_vocabulary_are_never_written(inside, tmp_path):
    folder = always(ord("x"), tmp_path / "padded", rows_more=50)
    assert inside("generate", folder, "a", *SHORT, "--temperature", 0).out == "x" * 12 + "\n"
    found = completions(inside("generate", folder, "a", *SHORT, "--temperature", 0, "--json"))[0]
    assert found["completion"] == "x" * 12
    assert found["finish_reason"] == "length"


def test_text_keeps_its_lines_tabs_and_letters():
    assert visible("a\tb\nc é 😀") == "a\tb\nc é 😀"


def test_nothing_that_steers_a_terminal_is_left():
    steering = [chr(code) for code in (*range(9), *range(11, 32), *range(0x7F, 0xA0), 0x202E, 0x2066)]
    shown = visible("".join(steering))
    assert not set(steering) & set(shown)
    assert visible("\x1b[31mred\r\x9b2J") == "␛[31mred␍<U+009B>2J"
