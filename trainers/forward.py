"""Log-probabilities of given tokens under a model: right-padded rows, grouped by length, memory bounded by chunks of the head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Work = TypeVar("Work")
# Above this many logits the head runs in chunks that are recomputed in the backward pass (2^26 float32 = 256 MB).
_MAX_LOGITS = 2**26
# Models that change the logits after the head; for these the whole forward is used.
_AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


class Segmented(Protocol):
    """Tokens in segments, such as a Batch: both columns [N], the segments contiguous from 0."""

    token: Tensor
    segment: Tensor


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

    def part(self, first: int, last: int) -> Rows:
        """Return the rows `first` to `last` − 1."""
        before, own = (int(self.inside[a:b].sum()) for a, b in ((0, first), (first, last)))
        return Rows(self.ids[first:last], self.inside[first:last], self.index[before : before + own])

    def segment(self) -> Tensor:
        """Return [M] the row of each token."""
        rows = torch.arange(self.ids.shape[0], device=self.ids.device)
        return rows.repeat_interleave(self.inside.sum(1))


def rows_of(batch: Segmented, budget: int) -> Iterator[Rows]:
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


def device_of(model: nn.Module) -> torch.device:
    """Return where a model computes."""
    spread = getattr(model, "spread", None)
    return next(model.parameters()).device if spread is None else spread.device


def mine(model: nn.Module, work: Iterable[Work], size: Callable[[Work], int]) -> Iterable[Work]:
    """Return what this process has to compute: everything, or its share where the model is spread over several (see shard.py)."""
    spread = getattr(model, "spread", None)
    return work if spread is None else spread.mine(work, size)


def joined(model: nn.Module, *columns: Tensor) -> tuple[Tensor, ...]:
    """Return columns that were filled where `mine` said, complete."""
    spread = getattr(model, "spread", None)
    return columns if spread is None else spread.joined(*columns)


def live(model: nn.Module, rows: Rows, wanted: Tensor, **options: Any) -> dict[str, Tensor]:
    """Return `columns_of_pass`; the weights of a model that is spread over processes are gathered on the way."""
    spread = getattr(model, "spread", None)
    if spread is None:
        return columns_of_pass(model, rows, wanted, **options)
    out: dict[str, Tensor] = spread(lambda inner: columns_of_pass(inner, rows, wanted, **options))
    return out


def columns_of_pass(
    model: nn.Module,
    rows: Rows,
    wanted: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    among: Tensor | None = None,
    valued: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return what a forward pass says about the M tokens of `rows`, float32 and with gradient: columns of call.LIVE.

    wanted [M] bool    the tokens whose `logp` [M] (and `entropy` [M], if asked for) is needed; the rest, and the first of each row, get 0
    among [M, K] ids   adds `logq` [M, K], the log-probabilities of these ids in the token's place
    valued [M] bool    adds `value_live` [M], the autoregressive critic's value after the token

    No attention mask is needed, since causal attention never looks at padding to the right: this lets the fast causal kernel run. The head is
    computed for the wanted tokens only, in chunks that are recomputed in the backward pass where the logits would be too large to keep.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; the log-probabilities of greedy decoding are not defined, use a positive one")
    keep = torch.zeros_like(rows.inside).masked_scatter(rows.inside, wanted)
    keep[:, 0] = False
    asked = rows.flat(keep)
    hidden, head = features(model, rows.ids)

    def score(x: Tensor, target: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        logits = head(x).float()
        if temperature != 1.0:
            logits = logits / temperature
        if not entropy and among is None:
            return (-F.cross_entropy(logits, target, reduction="none"),)
        logq = logits.log_softmax(-1)
        spread = -(logq.exp() * logq).sum(-1) if entropy else logq.new_zeros(len(x))
        return logq.gather(-1, target[:, None])[:, 0], spread, logq.gather(-1, ids)

    ids = hidden.new_zeros(int(asked.sum()), 0, dtype=torch.int64) if among is None else among[asked].long()
    found = _chunked(score, (hidden[:, :-1][keep[:, 1:]], rows.ids[keep], ids), _vocabulary(model, hidden))
    columns = {"logp": True, "entropy": entropy, "logq": among is not None}
    out = {n: _place(x, asked) for (n, is_wanted), x in zip(columns.items(), found, strict=False) if is_wanted}
    if valued is not None:
        from . import reserve  # which reads `features`

        out["value_live"] = _place(reserve.probe(model)(rows.flat(hidden)[valued]).float(), valued)
    return out


def _place(found: Tensor, where: Tensor) -> Tensor:
    """Return [M, …] with `found` in the places that are True in `where` [M], 0 elsewhere."""
    return found.new_zeros(len(where), *found.shape[1:]).index_put((where,), found)


def logprobs(model: nn.Module, ids: Tensor, keep: Tensor, *, temperature: float = 1.0, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return the log-probability of each token given those before it, and the entropy in nats of the distribution it comes from.

    ids [rows, L] right-padded, keep [rows, L] bool: the tokens wanted; the rest, and the first of each row, get 0. Both results [rows, L]
    float32; the entropy is None unless asked for.
    """
    rows = Rows(ids, torch.ones_like(keep), torch.arange(ids.numel(), device=ids.device))
    found = live(model, rows, keep.flatten(), temperature=temperature, entropy=entropy)
    return found["logp"].view(ids.shape), found["entropy"].view(ids.shape) if entropy else None


def _chunked(score: Callable[..., tuple[Tensor, ...]], columns: tuple[Tensor, ...], vocabulary: int) -> tuple[Tensor, ...]:
    """Return score(*columns), in recomputed chunks when the logits would be too large to keep."""
    per_chunk = max(1, _MAX_LOGITS // vocabulary)
    if len(columns[0]) <= per_chunk:
        return score(*columns)
    parts = [
        checkpoint(score, *chunk, use_reentrant=False) if torch.is_grad_enabled() else score(*chunk)
        for chunk in zip(*(x.split(per_chunk) for x in columns), strict=True)
    ]
    return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def features(model: nn.Module, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
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
