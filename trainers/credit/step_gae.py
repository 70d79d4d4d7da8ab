"""SAPO's advantage: GAE over turns instead of tokens, normalised over the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..chain import Truncation, advantages, chain_of_turns
from ..ops import normalize


def step_gae(
    value: Tensor,
    next_value: Tensor,
    sampled: Tensor,
    step: Tensor,
    step_traj: Tensor,
    step_reward: Tensor,
    step_penalty: Tensor,
    truncated: Tensor,
    *,
    discount: float = 0.99,
    lam: float = 0.95,
    unbiased: bool = True,
    truncation: Truncation = "terminal",
    eps: float = 1e-8,
) -> Tensor:
    """Return [S] Â_t = (A_t − c_inv·m_t − μ_B) / (σ_B + eps), A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V(s_{t+1}) − V(s_t).  arXiv 2608.19842

    V(s_t) is `value` at the first token written in step t. μ_B, σ_B over all steps of the batch in which anything was written; the others get 0.
    c_inv·m_t is −step_penalty: the setting rollout.invalid_penalty is c_inv, and goes neither into r_t nor onto Â_t again.

    value, next_value, sampled, step [N], step_traj, step_reward, step_penalty [S], truncated [T], all in the order of the batch.
    truncation  "terminal", as in the paper: nothing comes after an episode that a limit cut off; "bootstrap": γ · next_value of its last token.
                The critic's next_value must then be a state value: a Q(s_T, a_T) holds r_T already
    OURS: discount (γ), lam (λ) and eps; unbiased, the kind of std.
    """
    chain = chain_of_turns(sampled, step, step_traj)
    a = advantages(chain, step_reward, value, next_value, truncated, discount=discount, lam=lam, truncation=truncation)
    whole = torch.zeros_like(chain.step)
    return chain.steps(normalize(a + chain.collect(step_penalty), whole, norm="std", eps=eps, unbiased=unbiased, singleton="zero"))
