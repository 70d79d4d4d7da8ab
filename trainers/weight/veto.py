"""Veto: one token that the trainer finds next to impossible mutes its whole sequence."""

from __future__ import annotations

from torch import Tensor

from ..ops import segment_sum
from ._ratio import log_ratio


def veto(logp_train: Tensor, logp_old: Tensor, sampled: Tensor, segment: Tensor, *, threshold: float = 1e-4) -> Tensor:
    """Return [N] 0 in segments where a written token has ρ = exp(logp_train − logp_old) < threshold, else 1.  METHODS 8.4: slime, 1e-4

    logp_train, logp_old [N]; sampled [N] bool; segment [N] ids. To be combined with `mismatch`, `masked` or `icepop`: weights multiply.
    """
    bad = log_ratio(logp_train, logp_old, sampled, segment, "token").exp() < threshold
    return (segment_sum(bad.double(), segment) == 0)[segment].float()
