"""Dr. GRPO: the outcome minus the group's mean, without a division that favours easy and hard tasks."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from .grpo import grpo


def dr_grpo(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    *,
    singleton: Literal["pass", "zero"] = "pass",
) -> Tensor:
    """Return [S] A_i = R_i − mean_g R.  arXiv 2503.20783

    outcome [T], traj_group [T] → G, step_traj [S] → T. A group of one keeps R with singleton="pass", or gets 0.
    The paper's other half is the reduction `fixed_length`: the sum over tokens, divided by a constant; and no KL term.
    """
    return grpo(outcome, traj_group, step_traj, norm="mean", stats_over="trajectories", singleton=singleton)
