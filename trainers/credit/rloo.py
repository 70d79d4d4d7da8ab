"""RLOO: the outcome minus the mean outcome of the others in the group."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..ops import normalize, segment_count


def rloo(
    outcome: Tensor,
    traj_group: Tensor,
    step_traj: Tensor,
    *,
    singleton: Literal["pass", "zero"] = "pass",
) -> Tensor:
    """Return [S] the leave-one-out advantage A_i = R_i − mean_{j≠i} R_j = n/(n−1) · (R_i − mean_g R).  arXiv 2402.14740

    outcome [T], traj_group [T] → G, step_traj [S] → T. A group of one keeps R with singleton="pass", or gets 0.
    """
    count = segment_count(traj_group)[traj_group]
    scale = torch.where(count > 1, count / (count - 1).clamp(min=1), 1.0)
    return (scale * normalize(outcome, traj_group, norm="mean", eps=0.0, singleton=singleton))[step_traj]
