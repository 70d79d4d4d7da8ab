"""Divide by a constant length: the sum over a segment's tokens without favour for short or long ones."""

from __future__ import annotations

from torch import Tensor

from ..ops import size


def fixed_length(loss: Tensor, weight: Tensor, segment: Tensor, *, length: int) -> Tensor:
    """Return the scalar Σ_n w_n·loss_n / (R · length) with R segments (Dr. GRPO, arXiv 2503.20783).

    loss [N], weight [N] ≥ 0, segment [N] int ids from 0. `length` in tokens, usually the most that a segment may be given to write.
    """
    return (weight * loss).sum() / (max(size(segment), 1) * length)
