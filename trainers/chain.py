"""What estimators over tokens and over turns share: the chain of what the model wrote, without what it read in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .ops import is_last, scan

Truncation = Literal["bootstrap", "terminal"]


@dataclass(frozen=True)
class Chain:
    """Rows that follow each other inside their trajectories: written tokens [W], or turns [W] in which anything was written.

    first, last [W] → N   the first and the last written token of the row (a token: itself)
    step, traj  [W]       its step → S, its trajectory → T
    place       [S] → W   where the reward of a step belongs, -1 for nowhere
    """

    first: Tensor
    last: Tensor
    step: Tensor
    traj: Tensor
    place: Tensor

    def collect(self, x: Tensor) -> Tensor:
        """Return [W] float64 numbers of steps [S], such as rewards, on the rows where they belong."""
        there = self.place >= 0
        return torch.zeros(len(self.traj), dtype=torch.float64, device=x.device).index_add(0, self.place[there], x[there].double())

    def tokens(self, x: Tensor, n: int) -> Tensor:
        """Return [N] float32: the rows' numbers [W] on their (first) tokens, 0 elsewhere."""
        return x.new_zeros(n, dtype=torch.float32).index_copy(0, self.first, x.float())

    def steps(self, x: Tensor) -> Tensor:
        """Return [S] float32: the turns' numbers [W] on their steps, 0 where nothing was written."""
        return x.new_zeros(len(self.place), dtype=torch.float32).index_copy(0, self.step, x.float())


def chain_of_tokens(sampled: Tensor, step: Tensor, step_traj: Tensor) -> Chain:
    """Return the chain of the written tokens. sampled, step [N], step_traj [S], all in the order of the batch."""
    index = sampled.nonzero()[:, 0]
    return _chain(index, index, step[index], step_traj)


def chain_of_turns(sampled: Tensor, step: Tensor, step_traj: Tensor) -> Chain:
    """Return the chain of the steps in which anything was written. sampled, step [N], step_traj [S], all in the order of the batch."""
    index = sampled.nonzero()[:, 0]
    end = is_last(step[index])
    return _chain(index[end.roll(1)], index[end], step[index[end]], step_traj)


def _chain(first: Tensor, last: Tensor, step: Tensor, step_traj: Tensor) -> Chain:
    # An empty completion has no row: its reward goes to what was written last before it in its trajectory, since nothing else can have led there.
    place = torch.bincount(step, minlength=len(step_traj)).cumsum(0) - 1
    traj = step_traj[step]
    owner = torch.cat([traj, traj.new_tensor([-1])])[place]
    return Chain(first, last, step, traj, torch.where(owner == step_traj, place, -1))


def advantages(
    chain: Chain,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    truncated: Tensor,
    *,
    discount: float,
    lam: float | Tensor,
    truncation: Truncation,
) -> Tensor:
    """Return [W] float64 A_n = δ_n + γλ A_{n+1} with δ_n = r_n + γ V_{n+1} − V_n along each trajectory.  arXiv 1506.02438

    chain: tokens or turns; reward [S], value and next_value [N], truncated [T], discount γ, lam λ (a number, or one per trajectory [T]). V_n is
    the value of what row n was written in, so V_{n+1} is that of the next row, however much was read in between. After the last row comes 0, or
    what `next_value` says when the episode was cut off and `truncation` is "bootstrap".
    """
    v, end = value.double()[chain.first], is_last(chain.traj)
    cut_off = truncated[chain.traj] & (truncation == "bootstrap")
    after = torch.where(cut_off, next_value.double()[chain.last], 0.0)
    delta = chain.collect(reward) + discount * torch.where(end, after, v.roll(-1)) - v
    decay = discount * (lam[chain.traj] if isinstance(lam, Tensor) else torch.full_like(v, lam))
    return scan(delta, torch.where(end, 0.0, decay))
