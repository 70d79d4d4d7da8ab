"""Segment operations on flat tensors: sums, means and normalisation by id, linear in rows, no Python loop over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .batch import Batch

# Rewards are stored as float32; a spread below this share of the largest value is rounding, not a difference between outcomes.
_ROUNDING = 1e-6


def size(ids: Tensor) -> int:
    """Return how many ids there can be: the largest one plus one."""
    return int(ids.max()) + 1 if ids.numel() else 0


def segment_sum(x: Tensor, ids: Tensor, n: int | None = None) -> Tensor:
    """Return [n] the sum of `x` [rows] over rows of equal id; differentiable in `x`."""
    return x.new_zeros(size(ids) if n is None else n).index_add(0, ids, x)


def segment_count(ids: Tensor, n: int | None = None) -> Tensor:
    """Return [n] the number of rows of each id."""
    return torch.bincount(ids, minlength=0 if n is None else n)


def segment_mean(x: Tensor, ids: Tensor, weight: Tensor | None = None, n: int | None = None) -> Tensor:
    """Return [n] the (weighted) mean of `x` [rows] over rows of equal id; 0 where the weights sum to 0."""
    weight = torch.ones_like(x) if weight is None else weight
    total = segment_sum(weight, ids, n)
    return segment_sum(x * weight, ids, n) / torch.where(total > 0, total, 1)


def normalize(
    x: Tensor,
    group: Tensor,
    *,
    norm: Literal["std", "mean"],
    eps: float,
    unbiased: bool = True,
    singleton: Literal["pass", "zero"] = "pass",
) -> Tensor:
    """Return [rows] float32: `x` minus the mean of its group, over (std + eps) when `norm` is "std".

    x [rows], group [rows] int ids. Equal values give exactly 0. A group of one row is left as it is with "pass" (mean 0, std 1), or 0.
    """
    n = size(group)
    value = x.double()  # two passes in float64: E[x²] − E[x]² would cancel
    count = segment_count(group, n)
    centred = value - segment_mean(value, group, n=n)[group]
    lone = (count == 1)[group]
    centred = torch.where(_all_equal(value, group, n)[group], 0.0, centred)
    if norm == "std":
        free = (count - 1 if unbiased else count).clamp(min=1)
        std = (segment_sum(centred.square(), group, n) / free).sqrt()
        centred = centred / (std[group] + eps)
    if singleton == "pass":
        centred = torch.where(lone, value / (1 + eps) if norm == "std" else value, centred)
    return centred.float()


def _all_equal(value: Tensor, group: Tensor, n: int) -> Tensor:
    """Return [n] bool: the values of the group differ by no more than rounding."""
    infinite = value.new_full((n,), float("inf"))
    high = (-infinite).scatter_reduce(0, group, value, "amax")
    low = infinite.scatter_reduce(0, group, value, "amin")
    return high - low <= _ROUNDING * torch.maximum(high.abs(), low.abs())


def broadcast(advantage: Tensor, batch: Batch) -> Tensor:
    """Return [N] float32: an advantage per step [S] or per token [N], on the tokens that the model wrote and 0 elsewhere.

    Should S equal N, it is read as [S]. Raises ValueError for any other shape.
    """
    if advantage.shape == (batch.n_steps,):
        advantage = advantage[batch.step]
    if advantage.shape != (batch.n_tokens,):
        raise ValueError(f"an advantage has shape [S]=({batch.n_steps},) or [N]=({batch.n_tokens},), got {tuple(advantage.shape)}")
    return torch.where(batch.sampled, advantage, 0.0).float()


def discounted_returns(reward: np.ndarray, step_traj: np.ndarray, discount: float) -> np.ndarray:
    """Return [S] float64: R_t = r_t + discount · R_{t+1} inside each trajectory. `step_traj` [S] is sorted."""
    rewards, traj = reward.tolist(), step_traj.tolist()  # one backward pass over plain floats beats numpy scalars tenfold
    out = [0.0] * len(rewards)
    running, current = 0.0, -1
    for i in range(len(rewards) - 1, -1, -1):
        running = rewards[i] + (discount * running if traj[i] == current else 0.0)
        current = traj[i]
        out[i] = running
    return np.array(out)
