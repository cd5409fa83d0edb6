"""``llmexp plan``."""

from __future__ import annotations

import subprocess
import sys

import pytest

KEYS = {
    "n_params",
    "n_active_params",
    "flops_per_token",
    "memory_bytes",
    "step_seconds",
    "tokens_per_second_per_device",
    "mfu",
    "device_hours",
    "cost",
}


def test_the_keys_are_those_that_programs_rely_on(llmexp):
    said = llmexp("plan", "model=tiny", "--json").json
    assert set(said) >= KEYS
    assert all(isinstance(said[key], int) for key in ("n_params", "n_active_params", "flops_per_token"))
    assert said["memory_bytes"]["peak"] == sum(said["memory_bytes"]["parts"].values())
    assert set(said["cost"]) == {"amount", "currency"}


@pytest.mark.parametrize(
    "model, params",
    [("gpt2_124m", 124_439_808), ("llama3_8b", 8_030_261_248), ("llama3_405b", 405_853_388_800)],
)
def test_a_published_model_is_planned_without_data_or_tokenizer(llmexp, model, params):
    assert llmexp("plan", f"model={model}", "hardware=h100_sxm", "--json").json["n_params"] == params


def test_every_training_stage_of_an_experiment_is_planned(llmexp):
    said = llmexp("plan", "experiment=quickstart", "--json").json
    assert list(said["stages"]) == ["pretrain", "sft", "grpo"]
    assert said["stage"] == "grpo"
    assert len({plan["n_params"] for plan in said["stages"].values()}) == 1


def test_the_text_says_what_is_needed_and_whether_it_fits(llmexp):
    said = llmexp("plan", "model=llama3_405b", "hardware=h100_sxm").out
    assert "405,853,388,800" in said
    assert "DOES NOT FIT" in said


def test_a_model_folder_that_is_given_is_read(llmexp, tmp_path):
    from llmexp.model.config import ModelSpec
    from llmexp.model.folder import write_spec

    spec = ModelSpec(d_model=32, n_layers=1, n_heads=2, ffn_dim=64, max_seq_len=512, vocab_size=300)
    write_spec(spec, tmp_path)
    said = llmexp("plan", "stage=sft", f"inputs.model={tmp_path}", "--json").json
    assert said["n_params"] == 2 * 300 * 32 + 4 * 32 * 32 + 3 * 32 * 64 + 3 * 32


def test_a_composition_that_trains_nothing_is_a_mistake(llmexp):
    said = llmexp("plan", "stage=collect")
    assert said.code == 2
    assert "nothing to plan" in said.err


def test_a_vocabulary_that_nobody_knows_is_a_mistake_that_says_what_to_set(llmexp):
    said = llmexp("plan", "model=tiny", "tokenizer=tiktoken")
    assert said.code == 2
    assert "model.vocab_size" in said.err


def test_a_plan_for_named_hardware_loads_no_torch():
    code = (
        "import sys; from llmexp.cli.main import main; "
        "main(['plan', 'model=tiny', 'hardware=h100_sxm']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
