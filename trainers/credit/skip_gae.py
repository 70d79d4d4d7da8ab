"""SAO's advantage: GAE over written tokens with a λ that is nearer to 1 the more a trajectory wrote."""

from __future__ import annotations

from torch import Tensor

from .. import ops
from ..chain import Truncation, advantages, chain_of_tokens


def skip_gae(
    value: Tensor,
    next_value: Tensor,
    sampled: Tensor,
    step: Tensor,
    step_traj: Tensor,
    step_reward: Tensor,
    step_penalty: Tensor,
    truncated: Tensor,
    *,
    alpha: float = 1.5,
    discount: float = 1.0,
    whiten: bool = False,
    truncation: Truncation = "bootstrap",
    eps: float = 1e-8,
) -> tuple[Tensor, dict[str, float]]:
    """Return [N] Â(a_{i,j}) = δ + γλ Â(next written token) with λ = 1 − 1/(α l), l the number of tokens that the trajectory wrote.  arXiv 2607.07508

    δ(a_{i,N}) = r + γ V(a_{i+1,0}) − V(a_{i,N}) across the boundary of turn i, so that observations are skipped. Columns and truncation as in
    `gae`. λ is never below 0 (OURS: for α l < 1).
    OURS: discount (γ) is 1; whiten, over all written tokens of the batch, is off.
    Metric: lambda, averaged over trajectories that wrote anything.
    """
    chain = chain_of_tokens(sampled, step, step_traj)
    wrote = ops.segment_count(chain.traj, len(truncated)).double()
    lam = (1 - 1 / (alpha * wrote.clamp(min=1))).clamp(min=0)
    a = advantages(chain, step_reward + step_penalty, value, next_value, truncated, discount=discount, lam=lam, truncation=truncation)
    a = ops.whiten(a, eps=eps) if whiten else a
    return chain.tokens(a, len(sampled)), {"lambda": float(ops.segment_mean(lam, (wrote > 0).long(), n=2)[1])}
