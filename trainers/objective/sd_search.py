"""SD-Search: at the tokens of search queries, be like yourself with hindsight; token-level Jensen-Shannon divergence."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..ops import segment_sum

_REST = 1e-6  # probability that float32 sums cannot tell from 0
_NEVER = -100.0  # log-probability of a place that is not used: its probability is 0 in float32, and nothing becomes infinite


def sd_search(logq: Tensor, teacher_logq: Tensor, teacher_mask: Tensor, step: Tensor, step_traj: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N] JSD(P_tch ‖ P_stu) in nats and its own token weight 1/|Q_τ| on the query tokens Q_τ.  arXiv 2605.18299

    JSD(P‖Q) = ½ KL(P‖M) + ½ KL(Q‖M), M = (P+Q)/2, over the K ids of the teacher and one bucket for all the others (OURS): a lower bound of the
    divergence over the whole vocabulary, and equal to it when K covers it. Golden: P = (.7, .2, .1), Q = (.4, .4, .2) → 0.046201.

    logq [N, K] log π_θ of the stream teacher_ids (with gradient), teacher_logq [N, K], −inf where a place is not used, teacher_mask [N] 1 on
    query tokens that have a teacher, step [N] → S, step_traj [S] → T. With the reduce token_mean the loss is the mean over the trajectories that
    searched of the mean over their query tokens. Metrics per token: jsd; jsd_rest, the teacher's probability outside of the K ids.
    """
    used = teacher_logq > -torch.inf
    student, teacher = _with_rest(logq, used), _with_rest(teacher_logq, used)
    middle = torch.logaddexp(student, teacher) - math.log(2)
    jsd = 0.5 * (student.exp() * (student - middle) + teacher.exp() * (teacher - middle)).sum(-1)
    traj = step_traj[step]
    queries = segment_sum(teacher_mask.float(), traj)[traj]
    weight = teacher_mask / queries.clamp(min=1)
    return jsd, {"weight": weight, "jsd": jsd.detach(), "jsd_rest": teacher[:, -1].exp().detach()}


def _with_rest(logp: Tensor, used: Tensor) -> Tensor:
    """Return [N, K+1] the log-probabilities with that of all other tokens behind them."""
    logp = logp.masked_fill(~used, _NEVER)
    rest = 1 - logp.exp().sum(-1, keepdim=True)
    rest = rest + (rest.clamp(min=_REST) - rest).detach()  # held in value, not in gradient: the student may have too little there
    return torch.cat([logp, rest.log()], -1)
