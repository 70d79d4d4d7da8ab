"""HGPO: each action relative to others taken in the same state with the same last states before it, for every length of history."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..ops import normalize, size
from .grpo import grpo

_ZERO = 1e-6  # a level that says no more than this says nothing: means of float32 returns hit 0 only nearly


def hgpo(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    step_index: Tensor,
    step_return: Tensor,
    step_state: Tensor,
    *,
    history: int = 2,
    alpha: float = 1.0,
    norm: Literal["std", "mean"] = "std",
    unbiased: bool = False,
    base_group: bool = False,
    eps: float = 1e-6,
) -> tuple[Tensor, dict[str, float]]:
    """Return [S] A = Σ_k w_k a_k over the levels with a_k ≠ 0, w_k = (k+1)^α / (Σ_k (k+1)^α + eps).  arXiv 2602.22817

    a_k = (R_t − mean R) / (std R + eps) over all steps of the group whose last k states, their own included, are the same; k = 1 … min(K+1, t).
    A history that occurs once says nothing (a_k = 0). norm="mean" leaves out the division.

    outcome [T], traj_group [T] → G, step_traj [S] → T with the steps of a trajectory side by side and in order, step_index [S] from 0,
    step_return [S] = R_t, step_state [S] int ids, distinct between groups.
    history     K, how many states before the present one are looked at; alpha: α, how much more a longer history counts (0: all the same)
    base_group  GiGPO's A^E (unbiased, over rows) as a level k = 0 of weight 1; the authors' default is without
    Metric: levels, the number of levels that had something to say, averaged over steps.
    """
    levels = []
    if base_group:
        levels.append((1.0, grpo(outcome, traj_group, step_traj, norm=norm, stats_over="rows", eps=eps)))
    key = step_state
    for k in range(1, history + 2):
        if k > 1:
            key = _extend(key, step_state, step_index >= k - 1)
        levels.append((float(k + 1) ** alpha, normalize(step_return, key, norm=norm, eps=eps, unbiased=unbiased, singleton="zero")))
    weight = torch.stack([w * (a.abs() > _ZERO) for w, a in levels])
    a = torch.stack([a for _, a in levels])
    return (weight * a).sum(0) / (weight.sum(0) + eps), {"levels": float((weight > 0).sum(0).float().mean())}


def _extend(key: Tensor, state: Tensor, long_enough: Tensor) -> Tensor:
    """Return [S] ids of (key of the step before, own state); a step whose history is too short gets an id of its own."""
    pair = torch.unique(key.roll(1) * size(state) + state, return_inverse=True)[1]
    return torch.where(long_enough, pair, size(pair) + torch.arange(len(pair), device=pair.device))
