"""The ratio between the trainer's and the sampler's probability, by token or by sequence: what every correction begins with."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..ops import segment_mean, segment_sum


def log_ratio(logp_train: Tensor, logp_old: Tensor, sampled: Tensor, segment: Tensor, level: Literal["token", "sequence", "mean"]) -> Tensor:
    """Return [N] float64 log ρ without gradient: logp_train − logp_old; with "sequence" its sum over the segment, with "mean" its mean.

    Only written tokens enter a sum or a mean; on those that were only read the token's own entry is 0. A segment is one token stream, as the
    model sees it: a whole episode, unless its context was rebuilt on the way.
    """
    d = torch.where(sampled, (logp_train - logp_old).detach().double(), 0.0)
    if level == "token":
        return d
    if level == "sequence":
        return segment_sum(d, segment)[segment]
    return segment_mean(d, segment, sampled.double())[segment]
