"""Drawing one token per row, each row from its own stream of random numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return one number in [0, 1) per row from its seed and the index of its token (counter-based: SplitMix64, twice).

    seeds, index  [R] uint64
    """
    with np.errstate(over="ignore"):
        return (_mix(_mix(seeds) + (index + np.uint64(1)) * _GOLDEN) >> np.uint64(11)) * 2.0**-53


def _mix(z: np.ndarray) -> np.ndarray:
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(logits: Tensor, uniform: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return a token and its log-probability per row, by inverting the cumulative distribution at `uniform`.

    logits [R, V] float32; uniform [R]; temperature, top_p, top_k (int) [R], or [1] for all rows; → [R] int, [R] float32.
    Filters narrow the draw; the log-probability is that of the tempered, unfiltered distribution (temperature 0: the
    untempered one).
    """
    greedy = temperature == 0
    divisor = torch.where(greedy, 1.0, temperature)
    prob = torch.softmax(logits if bool((divisor == 1).all()) else logits / divisor[:, None], dim=-1)
    filtered = bool((top_k > 0).any()) or bool((top_p < 1).any())
    cdf = (_filter(prob, top_k, top_p) if filtered else prob).cumsum(-1)
    # Strictly below the total, whatever the rounding: the token found then has probability, even when the last ones
    # have none.
    total = cdf[:, -1]
    target = torch.minimum(uniform.to(total.dtype) * total, torch.nextafter(total, torch.zeros_like(total)))
    token = torch.searchsorted(cdf, target[:, None], right=True).squeeze(1)
    if bool(greedy.any()):
        token = torch.where(greedy, logits.argmax(-1), token)
    return token, prob.gather(1, token[:, None]).squeeze(1).log()


def _filter(prob: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Zero what is not among the `top_k` likeliest (0 = all), then what lies beyond the smallest set with mass `top_p`. [R, V]"""
    ranked, order = prob.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(prob.shape[1], device=prob.device)
    ranked = ranked * ((rank < top_k[:, None]) | (top_k == 0)[:, None])
    before = ranked.cumsum(-1) - ranked
    ranked = ranked * ((before < top_p[:, None] * ranked.sum(-1, keepdim=True)) | (top_p >= 1)[:, None])
    return torch.zeros_like(prob).scatter(1, order, ranked)
