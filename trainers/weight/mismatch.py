"""Truncated importance sampling between the engine that sampled and the trainer that learns."""

from __future__ import annotations

from torch import Tensor


def mismatch(logp_train: Tensor, logp_old: Tensor, *, cap: float = 2.0) -> Tensor:
    """Return [N] min(exp(logp_train − logp_old), cap), no gradient.  TIS; the blog post of Yao et al., 2025; cap 2 as in verl

    logp_train [N] (trainer, before the update), logp_old [N] (sampler). Use it with the objective `decoupled_clip`. `reduce` divides by the
    sum of weights, which is self-normalised importance sampling; with `fixed_length` the weights enter unnormalised.
    """
    return (logp_train - logp_old).exp().clamp(max=cap).detach()
