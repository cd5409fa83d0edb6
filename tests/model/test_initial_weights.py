"""Initial weights are a function of the seed and the parameter's name."""

from __future__ import annotations

import math

import pytest
import torch

from llmexp.model.config import ModelSpec

SIZES: dict = {"d_model": 64, "n_heads": 4, "ffn_dim": 128, "vocab_size": 500, "max_seq_len": 64}


def build(seed: int = 0, **changes: object) -> torch.nn.Module:
    return ModelSpec(**{**SIZES, "n_layers": 4, **changes}).build(seed=seed)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    one, same, other = build(1).state_dict(), build(1).state_dict(), build(2).state_dict()
    assert all(one[name].equal(same[name]) for name in one)
    assert not one["embed.weight"].equal(other["embed.weight"])


def test_a_weight_does_not_depend_on_which_others_there_are():
    tied, untied = build(tie_embeddings=True).state_dict(), build().state_dict()
    assert all(untied[name].equal(tied[name]) for name in tied)
    assert not untied["head.weight"].equal(untied["embed.weight"])


def test_building_neither_reads_nor_changes_torchs_random_state():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = build().state_dict()
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(2)
    assert all(value.equal(one[name]) for name, value in build().state_dict().items())


def test_matrices_have_the_asked_spread_and_residual_outputs_less_with_depth():
    for n_layers in (1, 4):
        state = build(n_layers=n_layers, init_std=0.05).state_dict()
        for name, value in state.items():
            if value.dim() == 2:
                residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                expected = 0.05 / math.sqrt(2 * n_layers) if residual else 0.05
                assert value.std().item() == pytest.approx(expected, rel=0.06), name


def test_gains_are_one_and_biases_zero():
    for name, value in build(norm="layer_norm", biases="all", position="learned").state_dict().items():
        if name.endswith("bias"):
            assert not value.any(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            assert value.std() > 0, name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_weights_on_a_gpu_are_those_of_the_cpu():
    spec = ModelSpec(**SIZES, n_layers=2)
    for one, other in zip(
        spec.build(seed=0).parameters(), spec.build(seed=0, device="cuda").parameters(), strict=True
    ):
        assert one.equal(other.cpu())
