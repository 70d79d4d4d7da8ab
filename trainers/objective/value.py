"""The loss of a value that the policy itself carries (critic `autoregressive`): a clipped squared error at the boundaries of its steps."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

KINDS = {"state": 1, "action": 2}


def value(
    value_live: Tensor,
    value_old: Tensor,
    value_target: Tensor,
    value_kind: Tensor,
    *,
    of: Literal["state", "action"],
    clip: float = 0.2,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N] ½·max((p − ȳ)², (p_clip − ȳ)²), p_clip = p_old + clip(p − p_old, ±ε), and its own token weight.  SAPO, arXiv 2608.19842

    value_live [N] = p (now, with gradient), value_old [N] = p_old, value_target [N] = ȳ = y/R_max: all in [−1, 1] but the target.
    value_kind [N]: 1 where a token ends the state of a step, 2 where it ends its action. The weight is 1 on the tokens of kind `of`, so that
    reduce=token_mean gives the paper's mean over turns; 0 elsewhere. The coefficient is c_V or c_Q; OURS 0.5.
    clip  ε; OURS 0.2
    Metrics per such token: value_error (|p − ȳ|), value_clipped (1 where the clip stops the gradient).
    """
    near = value_old + (value_live - value_old).clamp(-clip, clip)
    plain, clipped = (value_live - value_target).square(), (near - value_target).square()
    metrics = {
        "weight": (value_kind == KINDS[of]).float(),
        "value_error": (value_live - value_target).detach().abs(),
        "value_clipped": (clipped > plain).detach().float(),
    }
    return 0.5 * torch.maximum(plain, clipped), metrics
