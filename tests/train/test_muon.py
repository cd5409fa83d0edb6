"""Muon against torch's own, and against the iteration applied to singular values one by one."""

import copy
import time

import pytest
import torch

from llmexp.train.muon import COEFFICIENTS, Muon, orthogonalized

SHAPES = [(48, 48), (24, 96), (96, 24)]


def matrices():
    g = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=g)) for shape in SHAPES]


def stepped(optimizer, parameters, steps=4):
    for seed in range(steps):
        g = torch.Generator().manual_seed(seed)
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=g)
        optimizer.step()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("steps", [1, 5])
def test_each_singular_value_goes_through_the_polynomial_and_the_vectors_stay(shape, steps):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, vh = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm()
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    assert torch.allclose(orthogonalized(matrix, steps).double(), u @ torch.diag(s) @ vh, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"nesterov": False}, {"momentum": 0.5, "weight_decay": 0.2}], ids=str
)
def test_steps_are_those_of_torch_s_muon_to_the_precision_of_bf16(settings):
    ours, theirs = matrices(), matrices()
    arguments = {"lr": 0.1, "weight_decay": 0.0, **settings}
    stepped(Muon(ours, **arguments), ours)
    stepped(torch.optim.Muon(theirs, **arguments), theirs)
    for p, q, start in zip(ours, theirs, matrices(), strict=True):
        assert (p - q).norm() < 0.02 * (p - start).norm()


def test_without_nesterov_the_momentum_is_that_of_torch_s_muon():
    ours, theirs = matrices(), matrices()
    mine, other = Muon(ours, nesterov=False), torch.optim.Muon(theirs, nesterov=False)
    stepped(mine, ours)
    stepped(other, theirs)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.equal(mine.state[p]["momentum_buffer"], other.state[q]["momentum_buffer"])


def test_a_matrix_without_a_gradient_stays_and_a_zero_gradient_gives_no_nan():
    p, q = torch.nn.Parameter(torch.ones(4, 4)), torch.nn.Parameter(torch.ones(4, 4))
    q.grad = torch.zeros(4, 4)
    Muon([p, q], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(p, torch.ones(4, 4))
    assert torch.equal(q, torch.ones(4, 4))


def test_on_a_cpu_an_update_takes_about_as_long_as_its_products_in_fp32():
    matrix = torch.randn(512, 512)

    def seconds(work):
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - start)
        return best

    products = seconds(lambda: [matrix @ matrix for _ in range(15)])
    assert seconds(lambda: orthogonalized(copy.copy(matrix), 5)) < 4 * products
