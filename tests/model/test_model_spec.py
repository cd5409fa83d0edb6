"""The spec of a model: counts, checks, and what it builds."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from llmexp.config.spec import settings
from llmexp.model.build import build_model, empty_decoder
from llmexp.model.config import ModelSpec, flops_per_token, n_active_params, n_params

CONF = Path(__file__).parents[2] / "conf" / "model"
PUBLISHED = {
    "gpt2_124m": 124_439_808,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
}


def option(name: str) -> ModelSpec:
    data = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert data.pop("_target_") == "llmexp.model.config.ModelSpec"
    return ModelSpec(**data)


def make(**changes: object) -> ModelSpec:
    values: dict = {
        "d_model": 48,
        "n_layers": 2,
        "n_heads": 6,
        "ffn_dim": 80,
        "vocab_size": 97,
        "max_seq_len": 64,
    }
    return ModelSpec(**{**values, **changes})


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_model_has_its_published_number_of_parameters(name):
    spec = option(name)
    assert n_params(spec) == n_active_params(spec) == PUBLISHED[name]
    assert sum(p.numel() for p in empty_decoder(spec, device="meta").parameters()) == PUBLISHED[name]


def test_every_option_passes_its_own_checks():
    options = sorted(file.stem for file in CONF.glob("*.yaml"))
    assert {"tiny", "small", "debug", *PUBLISHED} <= set(options)
    for name in options:
        assert not list(option(name).check()), name


def test_tiny_and_small_have_the_size_that_they_are_for():
    assert 2.3e6 < n_params(option("tiny").with_vocabulary(4096)) < 2.7e6
    assert 16.5e6 < n_params(option("small")) < 17.5e6


SPECS = st.builds(
    make,
    n_kv_heads=st.sampled_from([None, 1, 2, 3, 6]),
    head_dim=st.sampled_from([None, 4, 16]),
    ffn_dim=st.integers(1, 90),
    norm=st.sampled_from(["rms_norm", "layer_norm"]),
    position=st.sampled_from(["rope", "learned", "none"]),
    feed_forward=st.sampled_from(["swiglu", "gelu", "gelu_tanh"]),
    biases=st.sampled_from(["none", "all"]),
    tie_embeddings=st.booleans(),
    n_layers=st.integers(1, 3),
)


@given(spec=SPECS)
@hypothesis_settings(max_examples=40, deadline=None)
def test_the_count_equals_that_of_the_built_model(spec):
    assert n_params(spec) == sum(p.numel() for p in empty_decoder(spec, device="meta").parameters())


@given(spec=SPECS)
@hypothesis_settings(max_examples=10, deadline=None)
def test_flops_per_token_equal_torchs_counter(spec):
    model = spec.build(seed=0)
    ids = torch.zeros(2, 16, dtype=torch.int64)
    # Fused attention on CPU is not counted by torch; the plain form is, with the whole square.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids).sum().backward()
    assert counter.get_total_flops() == flops_per_token(spec, 16) * ids.numel()


def test_the_spec_holds_the_keywords_of_what_it_builds():
    keywords = inspect.signature(build_model).parameters.keys()
    runtime = {"seed", "tokenizer_vocab_size", "device", "dtype"}
    assert {f.name for f in settings(ModelSpec)} == keywords - runtime


def test_a_null_vocabulary_takes_the_tokenizers_size():
    spec = make(vocab_size=None)
    assert spec.with_vocabulary(123).vocab_size == 123
    assert spec.build(seed=0, tokenizer_vocab_size=123).head_weight.shape == (123, 48)
    assert spec.vocab_size is None


def test_a_vocabulary_may_be_padded_but_not_cut():
    assert make(vocab_size=128).build(seed=0, tokenizer_vocab_size=97).head_weight.shape[0] == 128
    with pytest.raises(ValueError, match="vocab_size=97 has fewer rows than the tokenizer has tokens"):
        make().build(seed=0, tokenizer_vocab_size=98)


def test_no_vocabulary_at_all_is_said():
    with pytest.raises(ValueError, match=r"set model\.vocab_size"):
        make(vocab_size=None).build(seed=0)


@pytest.mark.parametrize(
    "changes, path, problem, remedy",
    [
        ({"n_heads": 7}, "n_heads", "n_heads=7 does not divide d_model=48", "use 6"),
        ({"n_kv_heads": 4}, "n_kv_heads", "n_kv_heads=4 does not divide n_heads=6", "use 3"),
        ({"head_dim": 7}, "head_dim", "need an even width", "head_dim=8"),
        ({"n_heads": 16}, "n_heads", "heads are 3 wide", "position=learned"),
        (
            {"position": "learned", "rope_scaling": "llama3"},
            "rope_scaling",
            "has no effect",
            "rope_scaling=none",
        ),
        (
            {"rope_scaling": "llama3", "rope_low_freq_factor": 4.0},
            "rope_low_freq_factor",
            "is not below",
            "1 and 4",
        ),
    ],
)
def test_a_bad_combination_is_named_with_its_remedy(changes, path, problem, remedy):
    (mistake,) = make(**changes).check()
    assert mistake.path == path
    assert problem in mistake.problem
    assert remedy in mistake.remedy


def test_counting_and_reading_heads_import_no_torch():
    code = (
        "import sys, llmexp.model.config, llmexp.model.folder, llmexp.plan.config, llmexp.plan.estimate;"
        "from llmexp.model.families.base import family; family('llama'); family('gpt2');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=CONF.parents[1]).returncode == 0
