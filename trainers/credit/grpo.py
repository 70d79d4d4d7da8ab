"""GRPO: the outcome relative to the group, the same for every step of the episode."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ..ops import normalize


def grpo(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    *,
    norm: Literal["std", "mean"] = "std",
    stats_over: Literal["trajectories", "rows"] = "trajectories",
    unbiased: bool = True,
    singleton: Literal["pass", "zero"] = "pass",
    eps: float = 1e-6,
) -> Tensor:
    """Return [S] the group-relative advantage A_i = (R_i − mean_g R) / (std_g R + eps).  arXiv 2402.03300

    outcome [T], traj_group [T] → G, step_traj [S] → T.
    norm        "mean" leaves out the division: Dr. GRPO, arXiv 2503.20783
    stats_over  "rows": every step counts its trajectory's outcome, so that longer episodes weigh more
    singleton   a group of one: "pass" keeps R, "zero" gives 0
    """
    if stats_over == "rows":
        return normalize(outcome[step_traj], traj_group[step_traj], norm=norm, eps=eps, unbiased=unbiased, singleton=singleton)
    return normalize(outcome, traj_group, norm=norm, eps=eps, unbiased=unbiased, singleton=singleton)[step_traj]
