"""What there was to compare, how old it was, and whether two programs agree about it: metrics of any method, from the batch alone."""

from __future__ import annotations

import torch

from .batch import Batch
from .ops import segment_count, segment_mean, segment_sum


def diagnose(batch: Batch) -> dict[str, float]:
    """Return metrics about a batch that has its advantages; an advantage of a step is the mean over its written tokens.

    credit/singletons     share of steps that nobody else of the group took in the same state (their anchor group has one member)
    credit/zero           share of steps with advantage 0
    credit/all_failed     share of groups in which nobody succeeded
    credit/failed_spread  standard deviation of the advantages inside a failed episode, averaged over those with two steps or more: 0 means
                          that all steps of a failure are blamed alike
    """
    if batch.advantage is None:
        return {}
    step = segment_mean(batch.advantage, batch.step, batch.sampled.float(), batch.n_steps)
    alone = segment_count(batch.step_state)[batch.step_state] == 1
    success = segment_sum(batch.success.float(), batch.traj_group)
    centred = step - segment_mean(step, batch.step_traj)[batch.step_traj]
    spread = segment_mean(centred.square(), batch.step_traj).sqrt()[~batch.success & (batch.length > 1)]
    return {
        "credit/singletons": float(alone.float().mean()),
        "credit/zero": float((step == 0).float().mean()),
        "credit/all_failed": float((success == 0).float().mean()),
        "credit/failed_spread": float(spread.mean()) if spread.numel() else 0.0,
    }


def staleness(batch: Batch, version: int) -> dict[str, float]:
    """Return how many versions the written tokens are behind `version`: mean, largest, and the share of each (staleness/0, staleness/1, …).

    Nothing when every token was written by the present weights, or by no model (demonstrations).
    """
    if batch.logp_old is None:
        return {}
    age = version - batch.version[batch.sampled]
    if not age.numel() or int(age.max()) <= 0:
        return {}
    share = torch.bincount(age.clamp(min=0)).float() / age.numel()
    out = {f"staleness/{i}": float(x) for i, x in enumerate(share.tolist()) if x}
    return out | {"staleness/mean": float(age.float().mean()), "staleness/max": float(age.max())}


def disagreement(batch: Batch, version: int) -> dict[str, float]:
    """Return how far the trainer's log-probabilities are from the sampler's, over the tokens that the present weights `version` wrote.

    d = logp_train − logp_old. mismatch/mean, mismatch/max: of |d|. mismatch/k3: the mean of exp(d) − 1 − d, an estimate of
    KL(sampler ‖ trainer) that is never negative. mismatch/tokens: how many there were. Older tokens differ because the weights do, which is
    not the engine's doing. Nothing without the stream `logp_train`, or when no token is that new.
    """
    if batch.logp_old is None or "logp_train" not in batch.streams:
        return {}
    fresh = batch.sampled & (batch.version == version)
    d = (batch.streams["logp_train"] - batch.logp_old)[fresh].double()
    if not d.numel():
        return {}
    k3 = (d.exp() - 1 - d).mean()
    return {
        "mismatch/mean": float(d.abs().mean()),
        "mismatch/max": float(d.abs().max()),
        "mismatch/k3": float(k3),
        "mismatch/tokens": float(d.numel()),
    }
