"""GAE over written tokens: PPO's advantage from a critic's values, with observations skipped."""

from __future__ import annotations

from torch import Tensor

from .. import ops
from ..chain import Truncation, advantages, chain_of_tokens


def gae(
    value: Tensor,
    next_value: Tensor,
    sampled: Tensor,
    step: Tensor,
    step_traj: Tensor,
    step_reward: Tensor,
    step_penalty: Tensor,
    truncated: Tensor,
    *,
    discount: float = 1.0,
    lam: float = 1.0,
    whiten: bool = True,
    truncation: Truncation = "bootstrap",
    eps: float = 1e-8,
) -> Tensor:
    """Return [N] A_n = δ_n + γλ A_{n+1}, δ_n = r_n + γ V_{n+1} − V_n, over the written tokens of a trajectory.  arXiv 1506.02438

    value [N] = V of the context that token n was written in, next_value [N] = V of the context that ends with it, sampled, step [N], step_traj,
    step_reward, step_penalty [S], truncated [T], all in the order of the batch. The reward of a step, its penalty included, is on the last token
    written in it. V and A are carried through tokens that the model only read: V_{n+1} is that of the next token that it wrote.
    discount    γ; lam: λ
    whiten      afterwards (A − μ) / √(σ² + eps), over all written tokens of the batch
    truncation  after the last token of an episode that a limit cut off comes γ · next_value ("bootstrap") or 0 ("terminal")
    """
    chain = chain_of_tokens(sampled, step, step_traj)
    a = advantages(chain, step_reward + step_penalty, value, next_value, truncated, discount=discount, lam=lam, truncation=truncation)
    return chain.tokens(ops.whiten(a, eps=eps) if whiten else a, len(sampled))
