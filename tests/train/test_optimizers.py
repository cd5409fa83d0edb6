"""Optimizers against torch's own, parameter by parameter, and against the papers' first step."""

import copy

import pytest
import tiny_training as tiny
import torch

from llmexp.train.config import AdamWSpec, MuonSpec
from llmexp.train.optimizers import Composite, is_hidden_matrix, parts_of, set_rate


def step(model, optimizer, seed):
    g = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=g)
    optimizer.step()


def build(spec, model):
    return spec.build(parameters=dict(model.named_parameters()))


def test_adamw_equals_torch_s_with_two_groups():
    model = tiny.model()
    reference = copy.deepcopy(model)
    ours = build(AdamWSpec(lr=1e-2, weight_decay=0.3), model)
    decayed = [p for p in reference.parameters() if p.dim() >= 2]
    rest = [p for p in reference.parameters() if p.dim() < 2]
    theirs = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=False,
    )
    for i in range(4):
        step(model, ours, i)
        step(reference, theirs, i)
    for (name, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6), name


def test_adamw_s_first_step_is_the_sign_of_the_gradient_and_decay():
    p = torch.nn.Parameter(torch.tensor([[2.0, -3.0]]))
    optimizer = AdamWSpec(lr=0.1, weight_decay=0.5).build(parameters={"p": p})
    p.grad = torch.tensor([[4.0, -0.5]])
    optimizer.step()
    expected = torch.tensor([[2.0 * (1 - 0.05) - 0.1, -3.0 * (1 - 0.05) + 0.1]])
    assert torch.allclose(p, expected, atol=1e-6)


def test_muon_takes_the_blocks_matrices_and_adamw_everything_else():
    model = tiny.model()
    optimizer = build(MuonSpec(), model)
    assert isinstance(optimizer, Composite)
    held = {
        p: type(part).__name__ for part in optimizer.parts for g in part.param_groups for p in g["params"]
    }
    for name, p in model.named_parameters():
        expected = "Muon" if name.startswith("blocks.") and p.dim() == 2 else "AdamW"
        assert held[p] == expected, name
        assert is_hidden_matrix(name, p) == (expected == "Muon")


def test_muon_s_composite_steps_as_its_two_optimizers_apart():
    model = tiny.model()
    reference = copy.deepcopy(model)
    ours = build(MuonSpec(lr=0.02, adamw_lr=1e-2, weight_decay=0.1), model)
    hidden = {n: p for n, p in reference.named_parameters() if is_hidden_matrix(n, p)}
    rest = {n: p for n, p in reference.named_parameters() if n not in hidden}
    muon = MuonSpec(lr=0.02, weight_decay=0.1).build(parameters=hidden)
    adamw = AdamWSpec(lr=1e-2, weight_decay=0.1).build(parameters=rest)
    for i in range(3):
        step(model, ours, i)
        for p, q in zip(reference.parameters(), model.parameters(), strict=True):
            p.grad = q.grad.clone()
        muon.step()
        adamw.step()
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("spec", [AdamWSpec(lr=0.5), MuonSpec(lr=0.5, adamw_lr=0.25)], ids=["adamw", "muon"])
def test_the_schedule_scales_every_group_s_own_peak(spec):
    optimizer = build(spec, tiny.model())
    set_rate(optimizer, 0.5)
    rates = {type(part).__name__: {g["lr"] for g in part.param_groups} for part in parts_of(optimizer)}
    assert rates == ({"AdamW": {0.25}} if isinstance(spec, AdamWSpec) else {"Muon": {0.25}, "AdamW": {0.125}})


@pytest.mark.parametrize("spec", [AdamWSpec(lr=1e-2), MuonSpec()], ids=["adamw", "muon"])
def test_a_loaded_state_goes_on_as_the_first_would_have_and_keeps_its_rates(spec):
    model = tiny.model()
    optimizer = build(spec, model)
    step(model, optimizer, 0)
    other = copy.deepcopy(model)
    loaded = build(spec, other)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for o in (optimizer, loaded):
        set_rate(o, 0.1)
    step(model, optimizer, 1)
    step(other, loaded, 1)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def test_a_frozen_parameter_is_in_no_group():
    model = tiny.model()
    model.embed.weight.requires_grad_(False)
    for spec in (AdamWSpec(), MuonSpec()):
        held = {p for g in build(spec, model).param_groups for p in g["params"]}
        assert model.embed.weight not in held
