"""Drawing one token per row, each row from its own stream of random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agentgym.types import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 64


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


def draw(logits: Tensor, uniform: Tensor, settings: Sequence[Sampling]) -> tuple[Tensor, Tensor]:
    """Return a token and its log-probability per row, by inverting the cumulative distribution at `uniform`.

    logits [R, V] float32; uniform [R] in [0, 1); settings: one per row, or one for all; → [R] int, [R] float32.
    Filters narrow the draw; the log-probability is that of the tempered, unfiltered distribution (temperature 0: the
    untempered one).
    """
    device, heat = logits.device, [s.temperature or 1.0 for s in settings]
    if any(t != 1 for t in heat):
        logits = logits / (heat[0] if len(heat) == 1 else torch.tensor(heat, device=device)[:, None])
    prob = torch.softmax(logits, dim=-1)
    weight = prob
    if any(s.top_k > 0 or s.top_p < 1 for s in settings):
        weight = _filter(prob, *(torch.tensor([getattr(s, n) for s in settings], device=device) for n in ("top_k", "top_p")))
    token = _invert(weight, uniform)
    if any(s.temperature == 0 for s in settings):
        greedy = torch.tensor([s.temperature == 0 for s in settings], device=device)
        token = torch.where(greedy, logits.argmax(-1), token)
    return token, prob.gather(1, token[:, None]).squeeze(1).log()


def _invert(weight: Tensor, uniform: Tensor) -> Tensor:
    """Return per row the first token at which the cumulative sum of `weight` [R, V] goes beyond `uniform` times its total.

    First among blocks of tokens, then inside of one: a sum along a whole vocabulary is slow, and less exact. The place sought is kept
    strictly below the total, whatever the rounding, so that the token found has weight, even when the last ones have none.
    """
    rows, vocab = weight.shape
    blocks = F.pad(weight, (0, -vocab % _BLOCK)).view(rows, -1, _BLOCK) if vocab % _BLOCK else weight.view(rows, -1, _BLOCK)
    mass = blocks.sum(-1)
    upto = mass.cumsum(-1)
    place = _below(uniform.to(weight.dtype)[:, None] * upto[:, -1:], upto[:, -1:])
    block = torch.searchsorted(upto, place, right=True)
    inside = blocks.take_along_dim(block[:, :, None], 1).squeeze(1).cumsum(-1)
    rest = _below(place - (upto - mass).gather(1, block), inside[:, -1:])
    return (block * _BLOCK + torch.searchsorted(inside, rest, right=True)).squeeze(1)


def _below(x: Tensor, limit: Tensor) -> Tensor:
    """Return x, or the largest number below `limit` where it is not smaller."""
    return torch.minimum(x, torch.nextafter(limit, torch.zeros_like(limit)))


def _filter(prob: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Zero what is not among the `top_k` likeliest (0 = all), then what lies beyond the smallest set with mass `top_p`. [R, V]"""
    ranked, order = prob.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(prob.shape[1], device=prob.device)
    ranked = ranked * ((rank < top_k[:, None]) | (top_k == 0)[:, None])
    before = ranked.cumsum(-1) - ranked
    ranked = ranked * ((before < top_p[:, None] * ranked.sum(-1, keepdim=True)) | (top_p >= 1)[:, None])
    return torch.zeros_like(prob).scatter(1, order, ranked)
