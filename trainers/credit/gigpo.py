"""GiGPO: the outcome relative to the group, plus each action relative to others taken in the same state."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..ops import normalize, segment_count
from ..similar import merge_similar
from .grpo import grpo


def gigpo(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    step_return: Tensor,
    step_state: Tensor,
    step_penalty: Tensor | None = None,
    state_text: list[str] | None = None,
    *,
    step_weight: float = 1.0,
    norm: Literal["std", "mean"] = "std",
    stats_over: Literal["trajectories", "rows"] = "rows",
    unbiased: bool = True,
    singleton: Literal["pass", "zero"] = "pass",
    penalty: Literal["advantage", "score"] = "advantage",
    similarity: float | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Return [S] A(a_t) = A^E(τ) + ω · A^S(a_t).  arXiv 2505.10978

    A^E(τ_i) = (R(τ_i) − mean_j R(τ_j)) / F_norm over the group, A^S(a_t) = (R_t − mean R) / F_norm over all steps of the group that were
    taken in the state s_t (the anchor group), R_t = Σ_k γ^k r_{t+k}. F_norm is the standard deviation, or 1 with norm="mean".

    outcome [T], traj_group [T] → G, step_traj [S] → T, step_return [S] = R_t, step_state [S] int ids, distinct between groups,
    step_penalty [S] ≤ 0 (none: no step has any), state_text: the text of each id of step_state, read with `similarity` only.
    step_weight  ω
    stats_over   rows of A^E. The authors' code counts every step's outcome ("rows", the default here); the formula every trajectory once
    singleton    an episode group of one row: "pass" keeps R, "zero" gives 0. A state visited once always has A^S = 0
    penalty      where the penalty of an invalid action goes. "advantage" (OURS): onto A of its step, whatever the group did. "score", as in the
                 authors' trainer: onto R and R_t of that step alone, before any mean is taken, so that all rows' statistics see it. With
                 stats_over="trajectories" (OURS) the rows of a trajectory then share its weight of 1: no single step speaks for the trajectory
    similarity   states whose texts are at least so alike (difflib's ratio, in (0, 1)) count as one; None: equal ones only. See similar.py
    """
    group = traj_group[step_traj]
    step_penalty = torch.zeros_like(step_return) if step_penalty is None else step_penalty
    state = step_state if similarity is None else merge_similar(step_state, group, state_text, similarity)
    if penalty == "advantage":
        episode = grpo(outcome, traj_group, step_traj, norm=norm, stats_over=stats_over, unbiased=unbiased, singleton=singleton, eps=eps)
        step = normalize(step_return, state, norm=norm, eps=eps, unbiased=unbiased, singleton="zero")
        return episode + step_weight * step + step_penalty
    share = None if stats_over == "rows" else 1 / segment_count(step_traj)[step_traj]
    score = outcome[step_traj] + step_penalty
    episode = normalize(score, group, norm=norm, eps=eps, unbiased=unbiased, singleton=singleton, weight=share)
    return episode + step_weight * normalize(step_return + step_penalty, state, norm=norm, eps=eps, unbiased=unbiased, singleton="zero")
