"""What critics have in common: how well values explain what happened."""

from __future__ import annotations

from torch import Tensor

from ..ops import all_equal


def explained_variance(value: Tensor, target: Tensor) -> float | None:
    """Return 1 − Var(y − V) / Var(y): 1 perfect, 0 no better than a constant. None when all targets are equal: then nothing is to explain."""
    if len(target) < 2 or all_equal(target):
        return None
    target = target.double()
    return float(1 - (target - value).var() / target.var())
