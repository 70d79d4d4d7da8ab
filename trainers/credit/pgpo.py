"""PGPO: each action relative to others taken in the same state, by its return and by where it led, measured in the group's own returns."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..ops import is_last, normalize, segment_count, segment_mean, segment_sum
from ..similar import merge_similar


def pgpo(
    outcome: Tensor,
    truncated: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    step_return: Tensor,
    step_state: Tensor,
    state_text: list[str] | None = None,
    *,
    alpha: float = 2.0,
    beta: float = 1.0,
    discount: float = 1.0,
    norm: Literal["std", "mean"] = "std",
    unbiased: bool = True,
    leave_one_out: bool = False,
    similarity: float | None = None,
    eps: float = 1e-6,
) -> tuple[Tensor, dict[str, float]]:
    """Return [S] A_t = A^S_t + w(x) · A^φ_t.  arXiv 2609.02236

    A^S_t = (R_t − mean R) / (std R + ε) and A^φ_t = (δ_t − mean δ) / (std δ + ε) over the steps of the group taken in the state s_t, 0 when
    there is one or all are equal. Φ(s) = mean R over all visits of s in the group; δ_t = γ Φ(s_{t+1}) − Φ(s_t), at the end γ r_final − Φ(s_T).
    w(x) = β (1 − p_succ)^α, p_succ = share of the group's trajectories with r_final > 0. There is no A^E term.

    outcome [T] = r_final, without penalties (OURS), truncated [T], traj_group [T] → G, step_traj [S] → T with the steps of a trajectory side by
    side and in order, step_return [S] = R_t (its discount is the paper's η), step_state [S] int ids, distinct between groups, state_text: the
    text of each id, read with `similarity` only.
    OURS: the std is unbiased, as in GiGPO (`unbiased`); an episode cut off by a limit ends with r_final = 0 in δ; penalties of invalid actions
    stay out of R and Φ and go onto the advantage; norm="mean" leaves out both divisions.
    discount       γ, that of potentials
    leave_one_out  a step's own return counts in neither Φ that it is measured by; no other visit: Φ = 0
    similarity     states whose texts are at least so alike (difflib's ratio, in (0, 1)) count as one; None: equal ones only. See similar.py
    Metrics, averaged over groups: potential_weight, w(x); guided, the share of groups in which A^φ says anything.
    """
    group = traj_group[step_traj]
    state = step_state if similarity is None else merge_similar(step_state, group, state_text, similarity)
    potential = _potential(step_return.double(), state, leave_one_out)
    final = torch.where(truncated, 0.0, outcome).double()[step_traj]
    delta = discount * torch.where(is_last(step_traj), final, potential.roll(-1)) - potential
    by_return, by_potential = (normalize(x, state, norm=norm, eps=eps, unbiased=unbiased, singleton="zero") for x in (step_return, delta))
    w = beta * (1 - segment_mean((outcome > 0).float(), traj_group)) ** alpha
    present = segment_count(traj_group) > 0
    guided = segment_sum((by_potential != 0).float(), group, len(w)) > 0
    metrics = {"potential_weight": float(w[present].mean()), "guided": float(guided[present].float().mean())}
    return by_return + w[group] * by_potential, metrics


def _potential(value: Tensor, state: Tensor, leave_one_out: bool) -> Tensor:
    """Return [S] Φ of each step's state, with or without the step's own return `value` [S]."""
    if not leave_one_out:
        return segment_mean(value, state)[state]
    others = segment_count(state)[state] - 1
    return torch.where(others > 0, (segment_sum(value, state)[state] - value) / others.clamp(min=1), 0.0)
