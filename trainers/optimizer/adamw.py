"""AdamW; weight decay on matrices only."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def adamw(
    params: Iterable[tuple[str, nn.Parameter]],
    *,
    lr: float = 1e-4,
    betas: tuple[float, float] = (0.9, 0.95),
    weight_decay: float = 0.0,
    eps: float = 1e-8,
) -> torch.optim.AdamW:
    """Return AdamW over the named parameters that take a gradient.  arXiv 1711.05101

    Gains and biases (fewer than two dimensions) are not decayed.
    """
    trained = [p for _, p in params if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    # Two parameter groups by kind; an empty one is dropped because torch wants none.
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, eps=eps)
