"""sign: bad actions may count less than good ones."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.registry import bind


def test_sign_by_hand() -> None:
    found = bind("weight", "sign", {"negative": 0.2, "positive": 2.0})(torch.tensor([0.5, -3.0, 0.0, -0.0, 1e-9]))
    torch.testing.assert_close(found, torch.tensor([2.0, 0.2, 1.0, 1.0, 2.0]))


@given(st.lists(st.floats(-1e6, 1e6), max_size=20), st.floats(0.0, 5.0))
def test_scaling_the_weight_is_scaling_the_advantage(advantages: list[float], negative: float) -> None:
    a = torch.tensor(advantages, dtype=torch.float64)
    weighted = bind("weight", "sign", {"negative": negative})(a) * a
    assert torch.equal(weighted.clamp(min=0), a.clamp(min=0)) and torch.equal((weighted < 0), (a < 0) & (negative * a < 0))
