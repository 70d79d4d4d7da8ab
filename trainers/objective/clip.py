"""PPO's clipped surrogate, with separate bounds and dual clip."""

from __future__ import annotations

import torch
from torch import Tensor


def clip(
    logp: Tensor,
    logp_old: Tensor,
    advantage: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 3.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N] −min(ρA, clip(ρ, 1−low, 1+high)·A) with ρ = exp(logp − logp_old).  arXiv 1707.06347

    logp [N] (now, with gradient), logp_old [N] (the sampler's), advantage [N].
    high  above `low` is DAPO's clip-higher, arXiv 2503.14476
    dual  for A < 0 the loss is at most −dual·A, arXiv 1912.09729; None turns it off
    Metrics per token: clip_fraction, approx_kl (ρ − 1 − log ρ ≥ 0).
    """
    log_ratio = (logp - logp_old).clamp(-20, 20)
    ratio = log_ratio.exp()
    loss = torch.maximum(-ratio * advantage, -ratio.clamp(1 - low, 1 + high) * advantage)
    if dual is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
    with torch.no_grad():
        bound = torch.where(advantage > 0, ratio > 1 + high, (advantage < 0) & (ratio < 1 - low))
        metrics = {"clip_fraction": bound.float(), "approx_kl": ratio - 1 - log_ratio}
    return loss, metrics
