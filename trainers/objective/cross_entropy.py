"""Supervised learning: the negative log-likelihood of what was written, and in part of what was read."""

from __future__ import annotations

import torch
from torch import Tensor


def cross_entropy(logp: Tensor, sampled: Tensor, *, observation_weight: float = 0.0) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N] −logp and its own token weight: 1 on written tokens, `observation_weight` on those that were only read.

    logp [N] (with gradient), sampled [N] bool. The weight goes to `reduce`, so token_mean divides by Σ weight and not by a count: the loss
    stays a mean of −logp for any `observation_weight`. Learning to predict observations teaches a small model to copy from its context.
    """
    return -logp, {"weight": torch.where(sampled, 1.0, observation_weight)}
