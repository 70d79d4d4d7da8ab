"""double_sided: numbers and slopes by hand."""

from __future__ import annotations

import math

import pytest
import torch

from agentgym.registry import bind
from agentgym.trainers.call import call


def one(ratio: float, advantage: float, logp: float = -1.5, **options: float) -> tuple[float, float, dict[str, float]]:
    """Return the loss, d loss / d logp and the metrics of one token."""
    now = torch.tensor([logp], requires_grad=True)
    columns = {"logp_old": torch.tensor([logp - math.log(ratio)]), "advantage": torch.tensor([advantage])}
    loss, metrics = call(bind("objective", "double_sided", options), columns, logp=now)
    loss.sum().backward()
    assert now.grad is not None
    return loss.item(), now.grad.item(), {k: v.item() for k, v in metrics.items()}


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope", "masked"),
    [
        (1.0, 2.0, -2.0, 0),  # on policy: the policy gradient
        (0.8, 2.0, -1.6, 0),
        (5.9, 1.0, -5.9, 0),  # 1 + 5.0 is the upper end
        (6.1, 1.0, 0.0, 1),
        (6.1, -1.0, 0.0, 1),  # both signs of the advantage, unlike PPO's clip
        (0.69, 1.0, 0.0, 1),  # 1 − 0.3 is the lower end
        (0.71, -1.0, 0.71, 0),
    ],
)
def test_the_gradient_is_the_ratio_times_the_advantage_inside_the_band(ratio: float, advantage: float, slope: float, masked: int) -> None:
    loss, found, metrics = one(ratio, advantage)
    assert found == pytest.approx(slope, rel=1e-5)
    assert loss == pytest.approx(-1.5 * slope, rel=1e-5)  # −f(r)·A·logp, and the ratio is a mere weight
    assert metrics["masked"] == masked and metrics["ratio"] == pytest.approx(ratio, rel=1e-5)


def test_the_band_of_coding() -> None:
    assert one(0.5, 1.0, low=0.8, high=3.0)[1] == pytest.approx(-0.5)
    assert one(4.1, 1.0, low=0.8, high=3.0)[1] == 0


def test_masked_tokens_stay_in_the_denominator() -> None:
    """Two tokens, one of them masked: the mean is over both, since the objective has no weight of its own."""
    logp = torch.tensor([-1.0, -1.0])
    loss, extra = call(bind("objective", "double_sided"), {"logp_old": torch.tensor([-1.0, -4.0]), "advantage": torch.ones(2)}, logp=logp)
    assert "weight" not in extra
    total = call(bind("reduce", "token_mean"), {"loss": loss, "weight": torch.ones(2), "segment": torch.zeros(2).long()})
    assert total.item() == pytest.approx(0.5)


def test_an_absurd_ratio_is_finite() -> None:
    assert all(math.isfinite(x) for x in one(math.exp(60), 1.0)[:2])
