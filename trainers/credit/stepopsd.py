"""StepOPSD: the group advantage, token by token stronger where a teacher with hindsight agrees and weaker where it does not."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from agentgym.errors import ConfigError

from ..ops import segment_count, segment_mean, size
from .gigpo import gigpo
from .grpo import grpo


def stepopsd(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    step_return: Tensor,
    step_state: Tensor,
    step: Tensor,
    sampled: Tensor,
    logp_train: Tensor,
    teacher_logp: Tensor,
    teacher_mask: Tensor,
    *,
    state: dict[str, Any],
    base: Literal["grpo", "gigpo"] = "grpo",
    norm: Literal["std", "mean"] = "std",
    mix: float = 0.2,
    decay: int = 50,
    clip: float = 0.2,
    gain: Literal["sigmoid", "exp"] = "sigmoid",
    cap: float = 2.0,
) -> tuple[Tensor, dict[str, float]]:
    """Return [N] the shaped advantage Ã, and metrics.  arXiv 2605.27140

    Δ_j = log π_T(z_j | prefix ⊕ h) − log π_S(z_j | prefix) on the teacher's spans, 0 elsewhere;  w_j = clip(2σ(sign(A)·Δ_j), 1−α, 1+α);
    Ã_j = (1−λ)·A + λ·w_j·A.  Credit budget, over the spans k of a trajectory that has two or more:  m_k = mean_{j∈k} |Ã_j|, target = mean_k m_k,
    Ã_j ← clip(target / (m_k + 1e-6), 1/c_max, c_max)·Ã_j. All factors are positive: the sign of A stays.

    outcome [T], traj_group [T] → G, step_traj [S] → T, step_return, step_state [S], step [N] → S, sampled [N] bool, logp_train [N] = log π_S,
    teacher_logp [N], teacher_mask [N] 0 or 1. A span is the tokens of one step that the teacher scored.
    base   the advantage A that is shaped; GRPO in the paper. With gigpo the budget evens out its step part too: cap=1 turns the budget off
    mix    λ of the first round; `decay` rounds later it is 0, linearly (OURS), and Ã = A without budget. Rounds are counted in `state`
    clip   α_clip; gain: exp has e^x in place of 2σ(x)
    cap    c_max
    """
    if not (0 <= mix <= 1 and decay >= 1 and 0 <= clip < 1 and cap >= 1):
        raise ConfigError(f"credit stepopsd: mix={mix}, clip={clip}, decay={decay}, cap={cap}; mix is in [0, 1], clip in [0, 1), the others from 1")
    if base == "gigpo":
        per_step = gigpo(outcome, traj_group, step_traj, step_return, step_state, norm=norm)
    else:
        per_step = grpo(outcome, traj_group, step_traj, norm=norm)
    advantage = torch.where(sampled, per_step[step], 0.0)
    done = state["rounds"] = state.get("rounds", -1) + 1
    share = mix * max(0.0, 1 - done / decay)
    inside = (teacher_mask > 0) & sampled
    gap = torch.where(inside, teacher_logp - logp_train, 0.0)
    metrics = {"gap": _mean(gap.abs(), inside), "taught": len(step[inside].unique()) / max(len(step_traj), 1), "mix": share}
    if share == 0:
        return advantage, metrics
    signed = advantage.sign() * gap
    weight = (2 * signed.sigmoid() if gain == "sigmoid" else signed.clamp(max=20).exp()).clamp(1 - clip, 1 + clip)
    shaped = (1 - share) * advantage + share * weight * advantage
    factor = _budget(shaped.abs(), inside, step, step_traj, cap)
    return torch.where(inside, factor[step] * shaped, advantage), metrics


def _budget(amount: Tensor, inside: Tensor, step: Tensor, step_traj: Tensor, cap: float) -> Tensor:
    """Return [S] the factor c_k of each step; 1 where its trajectory has fewer than two spans."""
    n = len(step_traj)
    m = segment_mean(amount, step, inside.float(), n)
    has = segment_count(step[inside], n) > 0
    target = segment_mean(m, step_traj, has.float())[step_traj]
    several = segment_count(step_traj[has], size(step_traj))[step_traj] > 1
    return torch.where(several, (target / (m + 1e-6)).clamp(1 / cap, cap), 1.0)


def _mean(x: Tensor, inside: Tensor) -> float:
    return float(x[inside].mean()) if inside.any() else 0.0
