"""Let good and bad actions count differently: bad ones less, where pushing them down tears up the rest of a small model."""

from __future__ import annotations

import torch
from torch import Tensor


def sign(advantage: Tensor, *, positive: float = 1.0, negative: float = 1.0) -> Tensor:
    """Return [N] `positive` where the advantage is above 0, `negative` where it is below, 1 where it is 0.

    advantage [N]. What is pushed down gives its probability to whatever the model likes next, which in a small model far from the expert's track
    is noise: entropy grows, and success stalls. `negative` < 1 lessens that (compare AsymRE's lowered baseline, arXiv 2506.20520); positive=0.1
    with negative=1 is W-REINFORCE, arXiv 2506.01347, which does the opposite to keep a large model's diversity.
    """
    out = torch.ones_like(advantage)
    return torch.where(advantage > 0, positive * out, torch.where(advantage < 0, negative * out, out))
