"""What critics have in common: how well values explain what happened."""

from __future__ import annotations

from torch import Tensor


def explained_variance(value: Tensor, target: Tensor) -> float | None:
    """Return 1 − Var(y − V) / Var(y): 1 perfect, 0 no better than a constant. None when all targets are equal: then nothing is to explain."""
    if len(target) < 2 or float(target.max() - target.min()) <= 1e-6 * float(target.abs().max()):
        return None
    target = target.double()
    return float(1 - (target - value).var() / target.var())
