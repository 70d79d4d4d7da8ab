"""IcePop: tokens whose ratio between trainer and engine leaves a band are muted, the others keep their ratio."""

from __future__ import annotations

from torch import Tensor

from .masked import masked


def icepop(logp_train: Tensor, logp_old: Tensor, sampled: Tensor, segment: Tensor, *, alpha: float = 0.5, beta: float = 5.0) -> Tensor:
    """Return [N] M(ρ) = ρ if α ≤ ρ ≤ β else 0, ρ = exp(logp_train − logp_old) per token, no gradient.  IcePop, arXiv 2510.18855

    logp_train, logp_old [N]; sampled [N] bool; segment [N] ids. The formula is that of `masked` by token; the band 0.5 to 5 is the one of
    the Ring-1T report. Use it with the objective `decoupled_clip`.
    """
    return masked(logp_train, logp_old, sampled, segment, low=alpha, high=beta)
