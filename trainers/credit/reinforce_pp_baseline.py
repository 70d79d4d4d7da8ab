"""REINFORCE++ with a baseline: the outcome minus the group's mean, whitened over the whole batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ..chain import chain_of_tokens
from ..ops import normalize, whiten


def reinforce_pp_baseline(
    outcome: Tensor,
    traj_group: Tensor,
    sampled: Tensor,
    step: Tensor,
    step_traj: Tensor,
    *,
    singleton: Literal["pass", "zero"] = "pass",
    eps: float = 1e-8,
) -> Tensor:
    """Return [N] A_n = (a_n − μ) / √(σ² + eps) with a_n = R_i − mean_g R; μ, σ² over all written tokens of the batch.  arXiv 2501.03262

    outcome [T], traj_group [T] → G, sampled, step [N], step_traj [S] → T. A group of one keeps R with singleton="pass", or gets 0 before μ.
    The group's std is not divided by; longer trajectories weigh more in μ and σ.
    """
    chain = chain_of_tokens(sampled, step, step_traj)
    relative = normalize(outcome, traj_group, norm="mean", eps=0.0, singleton=singleton)
    return chain.tokens(whiten(relative[chain.traj], eps=eps), len(sampled))
