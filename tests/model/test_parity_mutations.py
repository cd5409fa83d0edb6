"""A decoder that computes something slightly else must fail the comparison with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from llmexp.model.build import empty_decoder
from llmexp.model.decoder import Decoder
from llmexp.model.io import load
from llmexp.nn import attention, position
from llmexp.nn.visibility import Visibility

LLAMA, GPT2 = "llama_grouped_scaled", "gpt2"


@pytest.fixture(scope="module")
def folders(reference_of: Callable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name in (LLAMA, GPT2):
        made[name] = tmp_path_factory.mktemp(name)
        reference_of(name).save_pretrained(made[name])
    return made


def respec(**changes: object) -> Callable[[Decoder, pytest.MonkeyPatch, Path], Decoder]:
    def mutate(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
        other = empty_decoder(dataclasses.replace(load(folder)[1], **changes))
        other.load_state_dict(model.state_dict())
        return other.eval()

    return mutate


def interleave_rotary_pairs(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    def rotate(x: torch.Tensor, rotation: position.Rotation) -> torch.Tensor:
        cosines, sines = (t[..., : t.shape[-1] // 2].repeat_interleave(2, -1) for t in rotation)
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
        return x * cosines + turned * sines

    patch.setattr(attention, "rotate", rotate)
    return model


def swap_rotary_halves(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    for block in model.blocks:
        weight = block.attention.q.weight.data.unflatten(0, (-1, 2, block.attention.head_dim // 2))
        block.attention.q.weight.data = weight.flip(1).flatten(0, 2)
    return model


def no_rotation(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    model.position = position.Position()
    return model


def gate_and_up_swapped(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    for block in model.blocks:
        block.feed_forward.gate, block.feed_forward.up = block.feed_forward.up, block.feed_forward.gate
    return model


def key_heads_in_another_order(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    for block in model.blocks:
        block.attention.k.weight.data = block.attention.k.weight.data.roll(block.attention.head_dim, 0)
    return model


def no_gain(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    model.norm.weight.data.fill_(1.0)
    return model


def no_output_bias(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    model.blocks[0].attention.out.bias.data.zero_()
    return model


def look_ahead(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    patch.setattr("llmexp.model.decoder.CAUSAL", Visibility(mask=None, causal=False))
    return model


def positions_from_one(model: Decoder, patch: pytest.MonkeyPatch, folder: Path) -> Decoder:  # noqa: ARG001
    right = Decoder._count
    patch.setattr(Decoder, "_count", lambda *arguments: right(*arguments) + 1)
    return model


MUTATIONS = [
    (LLAMA, respec(rope_theta=10000.0)),
    (LLAMA, respec(rope_scaling="none")),
    (LLAMA, respec(rope_factor=4.0)),
    (LLAMA, respec(rope_original_max_seq_len=64)),
    (LLAMA, respec(norm_eps=1e-2)),
    (LLAMA, interleave_rotary_pairs),
    (LLAMA, swap_rotary_halves),
    (LLAMA, no_rotation),
    (LLAMA, gate_and_up_swapped),
    (LLAMA, key_heads_in_another_order),
    (LLAMA, no_gain),
    (LLAMA, look_ahead),
    (GPT2, respec(feed_forward="gelu")),
    (GPT2, respec(norm_eps=1e-2)),
    (GPT2, no_output_bias),
    (GPT2, positions_from_one),
    (GPT2, look_ahead),
]


@pytest.mark.parametrize("name, mutate", MUTATIONS)
@torch.no_grad()
def test_a_mutated_decoder_fails_the_parity(name, mutate, folders, ids, monkeypatch):
    model = load(folders[name])[0]
    right = model(ids)
    wrong = mutate(model, monkeypatch, folders[name])(ids)
    assert (wrong - right).abs().max() > 1e-3


@pytest.mark.parametrize("name", [LLAMA, GPT2])
@torch.no_grad()
def test_documents_that_see_each_other_fail_the_parity(name, folders, ids):
    model = load(folders[name])[0]
    doc_ids = (torch.arange(60) >= 25).long().expand(3, 60)
    positions = torch.arange(60) - 25 * doc_ids
    right = model(ids, positions, doc_ids)[:, 25:]
    alone = model(ids[:, 25:])
    torch.testing.assert_close(right, alone, rtol=0, atol=1e-4)
    assert (model(ids, positions)[:, 25:] - alone).abs().max() > 1e-3


@torch.no_grad()
def test_learned_positions_that_do_not_restart_fail_the_parity(folders, ids):
    model = load(folders[GPT2])[0]
    doc_ids = (torch.arange(60) >= 25).long().expand(3, 60)
    counting = torch.arange(60).expand(3, 60)
    assert (model(ids, counting, doc_ids)[:, 25:] - model(ids[:, 25:])).abs().max() > 1e-3
