"""token_mean, sequence_mean and fixed_length: by hand, linear in the loss, quiet on nothing."""

from __future__ import annotations

import pytest
import torch

from agentgym.registry import bind, names

LOSS = torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])
WEIGHT = torch.tensor([1.0, 1.0, 0.5, 1.0, 0.0])
SEGMENT = torch.tensor([0, 0, 0, 1, 2])
OPTIONS = {"fixed_length": {"length": 4}}


def reduce(name):
    return bind("reduce", name, OPTIONS.get(name))


@pytest.mark.parametrize(("name", "expected"), [("token_mean", 8.5 / 3.5), ("sequence_mean", (4.5 / 2.5 + 4) / 2), ("fixed_length", 8.5 / 12)])
def test_by_hand(name, expected):
    assert reduce(name)(LOSS, WEIGHT, SEGMENT).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", names("reduce"))
def test_linear_in_the_loss(name):
    f = reduce(name)
    other = torch.tensor([0.3, -1.0, 5.0, 2.0, 1.0])
    both = f(2 * LOSS - 3 * other, WEIGHT, SEGMENT)
    assert both.item() == pytest.approx((2 * f(LOSS, WEIGHT, SEGMENT) - 3 * f(other, WEIGHT, SEGMENT)).item(), abs=1e-4)


@pytest.mark.parametrize("name", names("reduce"))
def test_no_weight_gives_zero_and_no_nan(name):
    loss = LOSS.clone().requires_grad_()
    total = reduce(name)(loss, torch.zeros(5), SEGMENT)
    (slope,) = torch.autograd.grad(total, loss)
    assert total.item() == 0 and slope.count_nonzero() == 0
