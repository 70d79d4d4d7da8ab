"""REINFORCE++: the return from each token on, whitened over the whole batch; no group and no critic."""

from __future__ import annotations

import torch
from torch import Tensor

from ..chain import chain_of_tokens
from ..ops import is_last, scan, whiten


def reinforce_pp(
    sampled: Tensor,
    step: Tensor,
    step_traj: Tensor,
    step_reward: Tensor,
    step_penalty: Tensor,
    *,
    discount: float = 1.0,
    eps: float = 1e-8,
) -> Tensor:
    """Return [N] A_n = (G_n − μ) / √(σ² + eps) with G_n = r_n + γ G_{n+1}; μ, σ² over all written tokens of the batch.  arXiv 2501.03262

    sampled, step [N], step_traj, step_reward, step_penalty [S], all in the order of the batch. The reward of a step, its penalty included, is on
    the last token written in it. Tokens that the model only read are skipped: G is carried through them, and γ (`discount`) is not applied there.
    OURS: the KL penalty is not in the reward, where a reference would have to be kept even when it is not used; the objective `kl` has it.
    """
    chain = chain_of_tokens(sampled, step, step_traj)
    decay = torch.where(is_last(chain.traj), 0.0, float(discount))
    return chain.tokens(whiten(scan(chain.collect(step_reward + step_penalty), decay), eps=eps), len(sampled))
