"""clip, decoupled_clip, cross_entropy, kl and entropy: numbers and gradients by hand."""

from __future__ import annotations

import math

import pytest
import torch

from agentgym.registry import bind
from agentgym.trainers.call import call


def loss_and_slope(name, log_ratio, advantage, **options):
    """Return the loss and d loss / d logp of one token."""
    logp = torch.tensor([float(log_ratio)], requires_grad=True)
    zero = torch.zeros(1)
    columns = {"logp_old": zero, "logp_train": zero, "advantage": torch.tensor([float(advantage)])}
    loss, metrics = call(bind("objective", name, options), columns, logp=logp)
    loss.sum().backward()
    return loss.item(), logp.grad.item(), {k: v.item() for k, v in metrics.items()}


@pytest.mark.parametrize("name", ["clip", "decoupled_clip"])
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),  # on policy: the policy gradient
        (1.1, 2.0, -2.2, -2.2, 0),
        (1.5, 2.0, -2.4, 0.0, 1),  # good and already more likely: no more
        (0.5, 2.0, -1.0, -1.0, 0),  # good and less likely: pulled back
        (0.5, -2.0, 1.6, 0.0, 1),  # bad and already less likely: no more
        (1.5, -2.0, 3.0, 3.0, 0),  # bad and more likely: pushed down
        (5.0, -2.0, 6.0, 0.0, 0),  # dual clip at 3
    ],
)
def test_clip_by_hand(name, ratio, advantage, loss, slope, clipped):
    found, grad, metrics = loss_and_slope(name, math.log(ratio), advantage)
    assert (found, grad) == (pytest.approx(loss, abs=1e-5), pytest.approx(slope, abs=1e-5))
    assert metrics["clip_fraction"] == clipped
    assert metrics["approx_kl"] == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-5)


def test_clip_options():
    assert loss_and_slope("clip", math.log(1.25), 1.0, high=0.28)[0] == pytest.approx(-1.25, abs=1e-5)
    assert loss_and_slope("clip", math.log(5.0), -2.0, dual=None)[0] == pytest.approx(10.0, abs=1e-4)
    assert math.isfinite(loss_and_slope("clip", 500.0, -1.0, dual=None)[0])


def test_cross_entropy_brings_its_own_weight():
    sampled = torch.tensor([True, False])
    loss, extra = call(bind("objective", "cross_entropy", {"observation_weight": 0.3}), {"sampled": sampled}, logp=torch.tensor([-1.0, -2.0]))
    assert loss.tolist() == [1.0, 2.0] and extra["weight"].tolist() == pytest.approx([1.0, 0.3])


@pytest.mark.parametrize(("kind", "value", "slope"), [("k1", -0.1, 1.0), ("k2", 0.005, -0.1), ("k3", 0.005171, -0.105171)])
def test_kl_by_hand(kind, value, slope):
    logp = torch.tensor([-1.0], requires_grad=True)
    loss, metrics = call(bind("objective", "kl", {"kind": kind}), {"ref_logp": torch.tensor([-0.9])}, logp=logp)
    loss.sum().backward()
    assert loss.item() == pytest.approx(value, abs=1e-6) and logp.grad.item() == pytest.approx(slope, abs=1e-5)
    assert metrics["ref_kl"].item() == pytest.approx(0.005171, abs=1e-6)


def test_entropy_is_a_bonus():
    assert call(bind("objective", "entropy"), {}, entropy=torch.tensor([0.7])).tolist() == pytest.approx([-0.7])
