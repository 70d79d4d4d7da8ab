"""Every token counts the same, whichever episode it is in."""

from __future__ import annotations

from torch import Tensor


def token_mean(loss: Tensor, weight: Tensor, segment: Tensor) -> Tensor:
    """Return the scalar Σ_n w_n·loss_n / Σ_n w_n over the whole update (DAPO, arXiv 2503.14476); 0 when no token has weight.

    loss [N], weight [N] ≥ 0, segment [N].
    """
    total = weight.sum()
    return (weight * loss).sum() / total.where(total > 0, 1)
