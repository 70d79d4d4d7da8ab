"""Geometric rejection: a sequence on which engine and trainer drift apart on average is left out whole."""

from __future__ import annotations

from torch import Tensor

from ._ratio import log_ratio


def geometric(logp_train: Tensor, logp_old: Tensor, sampled: Tensor, segment: Tensor, *, low: float = 0.999, high: float = 1.001) -> Tensor:
    """Return [N] 1 where low ≤ exp(mean log ρ) ≤ high over the written tokens of the segment, else 0.  METHODS 8.4, band about 0.999 to 1.001

    logp_train, logp_old [N]; sampled [N] bool; segment [N] ids. The mean does not depend on the length, so long sequences are not the first to
    go; opposite errors cancel in it, which is what `veto` and `masked` are for. A rejected sequence leaves the denominator of `reduce` too
    (not with `fixed_length`).
    """
    mean = log_ratio(logp_train, logp_old, sampled, segment, "mean").exp()
    return ((mean >= low) & (mean <= high)).float()
