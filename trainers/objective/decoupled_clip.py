"""The clipped surrogate around the trainer's own old log-probabilities: the partner of the weight `mismatch`."""

from __future__ import annotations

from torch import Tensor

from .clip import clip


def decoupled_clip(
    logp: Tensor,
    logp_train: Tensor,
    advantage: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 3.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N] of `clip` with ρ = exp(logp − logp_train).  Decoupled PPO, arXiv 2110.00641

    logp_train [N] is the trainer's log-probability before the first update of the round. What the sampler did differently is the business
    of a weight: `mismatch` = min(π_train/π_sampler, cap). With plain `clip`, whose ratio starts at the sampler, it would be counted twice.
    """
    return clip(logp, logp_train, advantage, low=low, high=high, dual=dual)
