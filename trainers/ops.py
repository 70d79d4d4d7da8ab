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


def full(x: Tensor) -> Tensor:
    """Return the whole of a tensor; one that is sharded is gathered, which all its processes have to do together."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


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
    weight: Tensor | None = None,
) -> Tensor:
    """Return [rows] float32: `x` minus the mean of its group, over (std + eps) when `norm` is "std".

    x [rows], group [rows] int ids. Equal values give exactly 0. A group of one row is left as it is with "pass" (mean 0, std 1), or 0.
    weight [rows] is what a row counts, 1 by default: with 1/n each, n rows count as one.
    """
    n = size(group)
    value = x.double()  # two passes in float64: E[x²] − E[x]² would cancel
    weight = torch.ones_like(value) if weight is None else weight.double()
    count = segment_sum(weight, group, n)
    centred = value - segment_mean(value, group, weight, n)[group]
    lone = (count < 1.5)[group]  # shares of a third add up to 1 only nearly
    centred = torch.where(_all_equal(value, group, n)[group], 0.0, centred)
    if norm == "std":
        free = (count - 1 if unbiased else count).clamp(min=1)
        std = (segment_sum(weight * centred.square(), group, n) / free).sqrt()
        centred = centred / (std[group] + eps)
    alone = torch.zeros_like(value) if singleton == "zero" else value / (1 + eps) if norm == "std" else value
    return torch.where(lone, alone, centred).float()


def whiten(x: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Return [rows] float32 (x − mean) / √(var + eps) over all rows, var unbiased; exactly 0 when the rows are equal or there is only one."""
    value = x.double()
    if not len(value) or _all_equal(value, torch.zeros_like(x, dtype=torch.int64), 1):
        return torch.zeros_like(value).float()
    return ((value - value.mean()) / (value.var() + eps).sqrt()).float()


def _all_equal(value: Tensor, group: Tensor, n: int) -> Tensor:
    """Return [n] bool: the values of the group differ by no more than rounding."""
    infinite = value.new_full((n,), float("inf"))
    high = (-infinite).scatter_reduce(0, group, value, "amax")
    low = infinite.scatter_reduce(0, group, value, "amin")
    return high - low <= _ROUNDING * torch.maximum(high.abs(), low.abs())


def all_equal(x: Tensor) -> bool:
    """Return whether numbers differ by no more than rounding; `x` [rows], one at least."""
    return float(x.max() - x.min()) <= _ROUNDING * float(x.abs().max())


def broadcast(advantage: Tensor, batch: Batch) -> Tensor:
    """Return [N] float32: an advantage per step [S] or per token [N], on the tokens that the model wrote and 0 elsewhere.

    Should S equal N, it is read as [S]. Raises ValueError for any other shape.
    """
    if advantage.shape == (batch.n_steps,):
        advantage = advantage[batch.step]
    if advantage.shape != (batch.n_tokens,):
        raise ValueError(f"an advantage has shape [S]=({batch.n_steps},) or [N]=({batch.n_tokens},), got {tuple(advantage.shape)}")
    return torch.where(batch.sampled, advantage, 0.0).float()


def scan(x: Tensor, decay: Tensor) -> Tensor:
    """Return [rows] float64: A_n = x_n + decay_n · A_{n+1}, from the last row to the first. A row of decay 0 knows nothing of those after it."""
    running, out = 0.0, []  # one pass over plain floats beats numpy scalars tenfold, and a row's result does not depend on where it stands
    for a, d in zip(reversed(x.tolist()), reversed(decay.tolist()), strict=True):
        running = a + d * running if d else a  # not 0 · inf: a broken episode must not reach the one before it
        out.append(running)
    return torch.from_numpy(np.array(out, dtype=np.float64)[::-1].copy()).to(x.device)


def is_last(ids: Tensor) -> Tensor:
    """Return [rows] bool: the row after it has another id, or there is none. `ids` [rows] int, those of one id side by side."""
    out = torch.ones_like(ids, dtype=torch.bool)
    out[:-1] = ids[1:] != ids[:-1]
    return out


def discounted_returns(reward: np.ndarray, step_traj: np.ndarray, discount: float) -> np.ndarray:
    """Return [S] float64: R_t = r_t + discount · R_{t+1} inside each trajectory. `step_traj` [S] has a trajectory's steps side by side."""
    last = is_last(torch.from_numpy(step_traj))
    return scan(torch.from_numpy(reward), torch.where(last, 0.0, float(discount))).numpy()
