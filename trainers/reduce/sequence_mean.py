"""Every segment counts the same, however long it is."""

from __future__ import annotations

from torch import Tensor

from ..ops import segment_mean, segment_sum


def sequence_mean(loss: Tensor, weight: Tensor, segment: Tensor) -> Tensor:
    """Return the scalar mean over segments of Σ w·loss / Σ w inside the segment (GRPO, arXiv 2402.03300).

    loss [N], weight [N] ≥ 0, segment [N] int ids. A segment without weight is not counted; no weight at all gives 0.
    """
    counted = (segment_sum(weight, segment) > 0).sum()
    return segment_mean(loss, segment, weight).sum() / counted.clamp(min=1)
