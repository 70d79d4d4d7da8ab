"""GiGPO: the outcome relative to the group, plus each action relative to others taken in the same state."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ..ops import normalize
from .grpo import grpo


def gigpo(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    step_return: Tensor,
    step_state: Tensor,
    *,
    step_weight: float = 1.0,
    norm: Literal["std", "mean"] = "std",
    stats_over: Literal["trajectories", "rows"] = "rows",
    unbiased: bool = True,
    singleton: Literal["pass", "zero"] = "pass",
    eps: float = 1e-6,
) -> Tensor:
    """Return [S] A(a_t) = A^E(τ) + ω · A^S(a_t).  arXiv 2505.10978

    A^E(τ_i) = (R(τ_i) − mean_j R(τ_j)) / F_norm over the group, A^S(a_t) = (R_t − mean R) / F_norm over all steps of the group that were
    taken in the state s_t (the anchor group, an exact match), R_t = Σ_k γ^k r_{t+k}. F_norm is the standard deviation, or 1 with norm="mean".

    outcome [T], traj_group [T] → G, step_traj [S] → T, step_return [S] = R_t, step_state [S] int ids, distinct between groups.
    step_weight  ω
    stats_over   rows of A^E. The authors' code counts every step's outcome ("rows", the default here); the formula every trajectory once
    singleton    an episode group of one row: "pass" keeps R, "zero" gives 0. A state visited once always has A^S = 0
    """
    episode = grpo(outcome, traj_group, step_traj, norm=norm, stats_over=stats_over, unbiased=unbiased, singleton=singleton, eps=eps)
    return episode + step_weight * normalize(step_return, step_state, norm=norm, eps=eps, unbiased=unbiased, singleton="zero")
