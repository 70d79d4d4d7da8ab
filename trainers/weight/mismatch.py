"""Truncated importance sampling between the engine that sampled and the trainer that learns."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ._ratio import log_ratio


def mismatch(
    logp_train: Tensor,
    logp_old: Tensor,
    sampled: Tensor,
    segment: Tensor,
    *,
    cap: float = 2.0,
    low: float = 0.0,
    level: Literal["token", "sequence"] = "token",
) -> Tensor:
    """Return [N] min(ρ, cap) with ρ = exp(logp_train − logp_old), no gradient.  TIS; the blog post of Yao et al., 2025; cap 2 as in verl

    logp_train [N] (trainer, before the update), logp_old [N] (sampler), sampled [N] bool, segment [N] ids. Use it with the objective
    `decoupled_clip`. `low` also lifts what is below it (slime clamps to [low, cap], low 0). With level=sequence ρ is the product over the
    written tokens of a segment, the same for all of them; it has the right mean, and its spread grows with the length. `reduce` divides by the
    sum of weights, which is self-normalised importance sampling; with `fixed_length` the weights enter unnormalised.
    """
    return log_ratio(logp_train, logp_old, sampled, segment, level).exp().clamp(low, cap).float()
