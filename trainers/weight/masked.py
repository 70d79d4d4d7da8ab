"""Masked importance sampling: what the engine and the trainer disagree about too much does not count at all."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ._ratio import log_ratio


def masked(
    logp_train: Tensor,
    logp_old: Tensor,
    sampled: Tensor,
    segment: Tensor,
    *,
    low: float = 0.5,
    high: float = 2.0,
    level: Literal["token", "sequence"] = "token",
    normalize: bool = False,
) -> Tensor:
    """Return [N] ρ = exp(logp_train − logp_old) where low ≤ ρ ≤ high, else 0, no gradient.  MIS, METHODS: slime's mis.yaml, band 0.5 to 2

    logp_train, logp_old [N]; sampled [N] bool; segment [N] ids. `mismatch` caps what is too large, this drops it, on both sides. With
    level=sequence ρ is the product over the written tokens of a segment. `normalize` divides by the mean over the written tokens of the
    batch (1 afterwards, unless all are dropped). Use it with the objective `decoupled_clip`.
    """
    ratio = log_ratio(logp_train, logp_old, sampled, segment, level).exp()
    weight = torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)
    if normalize and bool((weight[sampled] > 0).any()):
        weight = weight / weight[sampled].mean()
    return weight.float()
