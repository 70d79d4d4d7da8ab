"""Entropy bonus: reward the policy for keeping its options open."""

from __future__ import annotations

from torch import Tensor


def entropy(entropy: Tensor) -> Tensor:
    """Return the loss [N] −H(π(·|context)) in nats; entropy [N] is that of the distribution that each token was drawn from, with gradient."""
    return -entropy
