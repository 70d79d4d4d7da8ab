"""SAO's objective: policy gradient weighted by the ratio to the sampler, with every token outside a band masked, whatever its advantage."""

from __future__ import annotations

import torch
from torch import Tensor


def double_sided(
    logp: Tensor,
    logp_old: Tensor,
    advantage: Tensor,
    *,
    low: float = 0.3,
    high: float = 5.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N] −sg[f(r)]·A·logp with r = exp(logp − logp_old), f(r) = r if 1−low < r < 1+high, else 0.  SAO, arXiv 2607.07508

    logp [N] (now, with gradient), logp_old [N] (the sampler's: there is no third policy in between), advantage [N].
    low, high  ε_l and ε_h. The paper has 0.3 and 5.0 for mathematics (the defaults), 0.8 and 3.0 for coding
    OURS: f(r) carries no gradient, so the gradient is f(r)·A·∇logp; masked tokens still count where `reduce` divides.
    Metrics per token: masked (1 outside the band), ratio (r, with |log r| at most 20).
    """
    ratio = (logp.detach() - logp_old).clamp(-20, 20).exp()
    inside = (ratio > 1 - low) & (ratio < 1 + high)
    weight = torch.where(inside, ratio, 0.0)
    return -weight * advantage * logp, {"masked": (~inside).float(), "ratio": ratio}
