"""Stay near a reference: the KL divergence from ref_logp, estimated on the sampled tokens."""

from __future__ import annotations

from typing import Literal

from torch import Tensor


def kl(logp: Tensor, ref_logp: Tensor, *, kind: Literal["k1", "k2", "k3"] = "k3") -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss [N], an estimate of KL(π ‖ π_ref) with d = ref_logp − logp:  k1 −d,  k2 ½d²,  k3 e^d − 1 − d (at most 10).

    logp [N] (with gradient), ref_logp [N]. k3 is "low-var KL", arXiv 2402.03300. As a loss, on tokens that π itself drew, the gradient of k2
    is that of the reverse KL, of k3 that of the forward KL, and of k1 zero on average (it is of use as a metric). Metric per token: ref_kl (k3).
    """
    d = (ref_logp - logp).clamp(-20, 20)
    k3 = (d.exp() - 1 - d).clamp(max=10)
    loss = {"k1": -d, "k2": 0.5 * d.square(), "k3": k3}[kind]
    return loss, {"ref_kl": k3.detach()}
