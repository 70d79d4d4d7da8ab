"""mismatch: truncated importance weights."""

from __future__ import annotations

import math

import pytest
import torch

from agentgym.registry import bind


def test_mismatch_by_hand():
    train, old = torch.tensor([-1.0, -1.0, -3.0], requires_grad=True), torch.tensor([-1.0, -2.0, -2.0])
    found = bind("weight", "mismatch")(train, old)
    assert found.tolist() == pytest.approx([1.0, 2.0, math.exp(-1)]) and not found.requires_grad
