"""Log-probabilities of given tokens under a model: right-padded rows, grouped by length, memory bounded by chunks of the head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .batch import Batch

# Above this many logits the head runs in chunks that are recomputed in the backward pass (2^26 float32 = 256 MB).
_MAX_LOGITS = 2**26
# Models that change the logits after the head; for these the whole forward is used.
_AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


@dataclass(frozen=True)
class Rows:
    """Some segments as a padded rectangle.

    ids [rows, L] token ids, 0 beyond the end; inside [rows, L] bool; index [M] the flat tokens (of N) in row order
    """

    ids: Tensor
    inside: Tensor
    index: Tensor

    def flat(self, x: Tensor) -> Tensor:
        """Return [M] the entries of x [rows, L] that are tokens."""
        return x[self.inside]

    def segment(self) -> Tensor:
        """Return [M] the row of each token."""
        rows = torch.arange(self.ids.shape[0], device=self.ids.device)
        return rows.repeat_interleave(self.inside.sum(1))


def rows_of(batch: Batch, budget: int) -> Iterator[Rows]:
    """Cut the batch into rectangles of at most `budget` tokens with padding (at least one segment each), long segments first.

    Sorting by length keeps the padding low; a rectangle that is an eighth full is also closed where lengths fall below 4/5 of its first.
    """
    length = torch.bincount(batch.segment)
    start = length.cumsum(0) - length
    order = length.argsort(descending=True, stable=True)
    for rows in _buckets(length[order].tolist(), budget):
        chosen = order[rows]
        column = torch.arange(int(length[chosen[0]]), device=length.device)
        inside = column < length[chosen, None]
        index = (start[chosen, None] + column)[inside]
        ids = torch.zeros_like(inside, dtype=torch.int64).masked_scatter(inside, batch.token[index])
        yield Rows(ids, inside, index)


def _buckets(lengths: list[int], budget: int) -> Iterator[slice]:
    """Cut lengths sorted from long to short into slices."""
    first = 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths):
            yield slice(first, i)
            return
        full = (i - first + 1) * lengths[first] > budget
        uneven = (i - first) * lengths[first] * 8 >= budget and lengths[i] * 5 < lengths[first] * 4
        if full or uneven:
            yield slice(first, i)
            first = i


def logprobs(model: nn.Module, ids: Tensor, keep: Tensor, *, temperature: float = 1.0, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return the log-probability of each token given those before it, and the entropy in nats of the distribution it comes from.

    ids [rows, L] right-padded, keep [rows, L] bool: the tokens wanted; the rest, and the first of each row, get 0. Both results [rows, L]
    float32; the entropy is None unless asked for. No attention mask is needed, since causal attention never looks at padding to the right:
    this lets the fast causal kernel run. The head is computed for the wanted tokens only.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; the log-probabilities of greedy decoding are not defined, use a positive one")
    wanted = keep[:, 1:]
    features, head = _features(model, ids)
    features, target = features[:, :-1][wanted], ids[:, 1:][wanted]

    def score(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(x).float()
        if temperature != 1.0:
            logits = logits / temperature
        if not entropy:
            return -F.cross_entropy(logits, y, reduction="none"), logits.new_zeros(0)
        logq = logits.log_softmax(-1)
        return logq.gather(-1, y[:, None])[:, 0], -(logq.exp() * logq).sum(-1)

    logp, ent = _chunked(score, features, target, _vocabulary(model, features))
    shape = wanted.shape

    def place(x: Tensor) -> Tensor:
        return F.pad(x.new_zeros(shape).masked_scatter(wanted, x), (1, 0))

    return place(logp), place(ent) if entropy else None


def _chunked(score: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], x: Tensor, y: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return score(x, y), in recomputed chunks when the logits would be too large to keep."""
    per_chunk = max(1, _MAX_LOGITS // vocabulary)
    if len(x) <= per_chunk:
        return score(x, y)
    parts = [
        checkpoint(score, a, b, use_reentrant=False) if torch.is_grad_enabled() else score(a, b)
        for a, b in zip(x.split(per_chunk), y.split(per_chunk), strict=True)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def _features(model: nn.Module, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return [rows, L, D] and the function from [M, D] to logits [M, V]; for unknown models the logits themselves and the identity."""
    outer: Any = model
    inner = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    prompt_learning = getattr(getattr(outer, "active_peft_config", None), "is_prompt_learning", False)
    known = hasattr(inner, "get_decoder") and hasattr(inner, "get_output_embeddings") and not prompt_learning
    if known and not any(getattr(inner.config, k, None) for k in _AFTER_HEAD):
        head, decoder = inner.get_output_embeddings(), inner.get_decoder()
        if head is not None and decoder is not None and decoder is not inner:
            return decoder(input_ids=ids, use_cache=False).last_hidden_state, head
    out = outer(input_ids=ids, use_cache=False) if hasattr(outer, "config") else outer(ids)
    return getattr(out, "logits", out), lambda x: x


def _vocabulary(model: nn.Module, features: Tensor) -> int:
    config = getattr(model, "config", None)
    return int(getattr(config, "vocab_size", None) or features.shape[-1])
