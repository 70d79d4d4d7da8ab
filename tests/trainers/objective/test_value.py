"""value: numbers and slopes by hand."""

from __future__ import annotations

import pytest
import torch

from agentgym.errors import ConfigError
from agentgym.registry import bind
from agentgym.trainers.call import call


def one(p: float, old: float, target: float, **options: float) -> tuple[float, float, dict[str, float]]:
    live = torch.tensor([p], requires_grad=True)
    columns = {"value_old": torch.tensor([old]), "value_target": torch.tensor([target]), "value_kind": torch.tensor([1])}
    loss, extra = call(bind("objective", "value", {"of": "state", **options}), columns, value_live=live)
    loss.sum().backward()
    assert live.grad is not None
    return loss.item(), live.grad.item(), {k: v.item() for k, v in extra.items()}


@pytest.mark.parametrize(
    ("p", "loss", "slope", "clipped"),
    [
        (0.3, 0.245, -0.7, 0),  # ½ (0.3 − 1)²
        (0.5, 0.18, 0.0, 1),  # p_clip = 0.4 is farther from 1: ½ · 0.6², and no gradient
        (-0.3, 0.845, -1.3, 0),  # p_clip = 0: nearer, so the plain error counts and pulls back
    ],
)
def test_a_clipped_squared_error(p: float, loss: float, slope: float, clipped: int) -> None:
    """p_old = 0.2, ȳ = 1, ε = 0.2."""
    found = one(p, 0.2, 1.0)
    assert found[:2] == pytest.approx((loss, slope))
    assert found[2] == pytest.approx({"weight": 1.0, "value_error": 1.0 - p, "value_clipped": clipped})
    assert one(p, 0.2, 1.0, clip=2.0)[1] == pytest.approx(p - 1)


def test_states_and_actions_are_told_apart_by_kind() -> None:
    """The mean is over the turns' own tokens: 0 elsewhere, whatever stands there."""
    columns = {
        "value_old": torch.zeros(5),
        "value_target": torch.tensor([9.0, 1.0, 0.4, 9.0, 0.6]),
        "value_kind": torch.tensor([0, 1, 2, 0, 1]),
        "value_live": torch.zeros(5),
    }
    for of, weight, mean in (("state", [0, 1, 0, 0, 1], (0.5 * 1 + 0.5 * 0.36) / 2), ("action", [0, 0, 1, 0, 0], 0.5 * 0.16)):
        loss, extra = call(bind("objective", "value", {"of": of}), columns)
        assert extra["weight"].tolist() == weight
        rows = {"loss": loss, "weight": extra["weight"], "segment": torch.zeros(5).long()}
        assert call(bind("reduce", "token_mean"), rows).item() == pytest.approx(mean)


def test_what_it_is_the_value_of_must_be_said() -> None:
    with pytest.raises(ConfigError, match="needs the option 'of'"):
        bind("objective", "value")
    with pytest.raises(ConfigError, match="expected Literal"):
        bind("objective", "value", {"of": "turn"})
