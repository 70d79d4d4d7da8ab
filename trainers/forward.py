"""Log-probabilities of given tokens under a model: common beginnings computed once, the rest in right-padded rows, the head in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .last_layer import last_states
from .prefix import AFTER_HEAD, Tree, tree_batches

Work = TypeVar("Work")
# Above this many logits (2^26 float32 = 256 MB) the head runs in chunks that are recomputed in the backward pass, each of at most _CHUNK: 64 MB,
# which malloc takes from the system and gives back. Blocks below 32 MB come from glibc's heap, where freed ones were not used again (measured).
_MAX_LOGITS = 2**26
_CHUNK = 2**24
_DEALT = 2048  # tokens of the smallest micro-batch that work is cut into for several processes


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

    @property
    def token(self) -> Tensor:
        """[M] the ids."""
        return self.ids[self.inside]

    @property
    def at(self) -> Tensor:
        """[M] the place of each token among the `cells`."""
        return self.inside.flatten().nonzero()[:, 0]

    @property
    def first(self) -> Tensor:
        """[M] bool: the first token of its row, which nothing predicts."""
        return self.at % self.ids.shape[1] == 0

    @property
    def cells(self) -> int:
        """How many tokens the model computes."""
        return self.ids.numel()

    @property
    def padding(self) -> int:
        """How many of them are nobody's."""
        return self.cells - len(self.index)

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


MicroBatch = Rows | Tree  # both know ids, index, token, at, first, cells, padding and segment()


def rows_of(batch: Segmented, budget: int) -> Iterator[Rows]:
    """Cut the batch into rectangles of at most `budget` tokens with padding (at least one segment each), long segments first.

    Sorting by length keeps the padding low; a rectangle that is an eighth full is also closed where lengths fall below 4/5 of its first.
    """
    length = torch.bincount(batch.segment)
    return _rectangles(batch.token, length, length.argsort(descending=True, stable=True), budget)


def micro_batches(batch: Segmented, budget: int, *, share: bool) -> Iterator[MicroBatch]:
    """Cut the batch into forward passes of at most `budget` computed tokens (at least one segment each).

    share  whether segments that begin alike are computed as one tree, where that pays; the others, and all without it, are rectangles
    """
    if not share:
        yield from rows_of(batch, budget)
        return
    length = torch.bincount(batch.segment)
    grown, alone = tree_batches(batch.token, length, budget)
    yield from grown
    yield from _rectangles(batch.token, length, alone[length[alone].argsort(descending=True, stable=True)], budget)


def _rectangles(token: Tensor, length: Tensor, order: Tensor, budget: int) -> Iterator[Rows]:
    """Yield the segments `order`, sorted from long to short, as rectangles."""
    start = length.cumsum(0) - length
    for rows in _buckets(length[order].tolist(), budget):
        chosen = order[rows]
        column = torch.arange(int(length[chosen[0]]), device=length.device)
        inside = column < length[chosen, None]
        index = (start[chosen, None] + column)[inside]
        ids = torch.zeros_like(inside, dtype=torch.int64).masked_scatter(inside, token[index])
        yield Rows(ids, inside, index)


def _buckets(lengths: list[int], budget: int) -> Iterator[slice]:
    """Cut lengths sorted from long to short into slices."""
    if not lengths:
        return
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


def even(budget: int, tokens: int, processes: int) -> int:
    """Return the budget of a micro-batch when `tokens` are dealt among processes: smaller where there would be nothing to deal out evenly."""
    return min(budget, max(_DEALT, tokens // (2 * processes)))


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


def live(model: nn.Module, rows: MicroBatch, wanted: Tensor, **options: Any) -> dict[str, Tensor]:
    """Return `columns_of_pass`; the weights of a model that is spread over processes are gathered on the way."""
    spread = getattr(model, "spread", None)
    if spread is None:
        return columns_of_pass(model, rows, wanted, **options)
    out: dict[str, Tensor] = spread(lambda inner: columns_of_pass(inner, rows, wanted, **options))
    return out


def columns_of_pass(
    model: nn.Module,
    rows: MicroBatch,
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
    computed for the wanted tokens only, once for tokens that several rows share, in chunks that are recomputed in the backward pass where the
    logits would be too large to keep.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; the log-probabilities of greedy decoding are not defined, use a positive one")
    asked = wanted & ~rows.first
    at = rows.at
    which, back = _distinct(rows, asked) if among is None else (asked.nonzero()[:, 0], None)  # `among` differs from row to row
    before = at[which - 1]
    hidden, head = states(model, rows, before if valued is None else torch.cat([before, at[valued]]))

    def score(x: Tensor, target: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        logits = head(x).float()
        if temperature != 1.0:
            logits = logits / temperature
        if not entropy and among is None:
            return (-F.cross_entropy(logits, target, reduction="none"),)
        logq = logits.log_softmax(-1)
        spread = -(logq.exp() * logq).sum(-1) if entropy else logq.new_zeros(len(x))
        return logq.gather(-1, target[:, None])[:, 0], spread, logq.gather(-1, ids)

    ids = hidden.new_zeros(len(which), 0, dtype=torch.int64) if among is None else among[asked].long()
    found = _chunked(score, (hidden[: len(which)], rows.token[which], ids), _vocabulary(model, hidden))
    columns = {"logp": True, "entropy": entropy, "logq": among is not None}
    out = {n: _place(x if back is None else x[back], asked) for (n, is_wanted), x in zip(columns.items(), found, strict=False) if is_wanted}
    if valued is not None:
        from . import reserve  # which reads `features`

        out["value_live"] = _place(reserve.probe(model)(hidden[len(which) :]).float(), valued)
    return out


def _distinct(rows: MicroBatch, asked: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return (a token of each distinct cell that is asked for, the place there of every token that is); None: each has a cell of its own."""
    index = asked.nonzero()[:, 0]
    if isinstance(rows, Rows):
        return index, None
    cells, back = rows.at[index].unique(return_inverse=True)
    return torch.empty_like(cells).scatter_(0, back, index), back


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
    if len(columns[0]) * vocabulary <= _MAX_LOGITS:
        return score(*columns)
    per_chunk = max(1, min(_CHUNK, _MAX_LOGITS) // vocabulary)
    parts = [
        checkpoint(score, *chunk, use_reentrant=False) if torch.is_grad_enabled() else score(*chunk)
        for chunk in zip(*(x.split(per_chunk) for x in columns), strict=True)
    ]
    return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def states(model: nn.Module, rows: MicroBatch, cells: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return [m, D] the last states of `cells` [m], places that `rows.at` names, and the function from [m, D] to logits, as `features` does."""
    if len(cells) == rows.cells:
        kept, back = torch.arange(rows.cells, device=cells.device), cells
    else:
        kept, back = cells.unique(return_inverse=True)
    if isinstance(rows, Rows):
        hidden, head = features(model, rows.ids, kept)
        return hidden[back], head
    from .tree_attention import hidden as of_tree  # FlexAttention takes its time to load

    outer: Any = model
    inner = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    return of_tree(inner.get_decoder(), rows, kept)[back], inner.get_output_embeddings()


def features(model: nn.Module, ids: Tensor, index: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return [m, D] the last states of the tokens `index` [m] of the flattened ids [rows, L], and the function from [m, D] to logits [m, V].

    For unknown models these are the logits themselves, and the identity.
    """
    outer: Any = model
    inner = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    prompt_learning = getattr(getattr(outer, "active_peft_config", None), "is_prompt_learning", False)
    known = hasattr(inner, "get_decoder") and hasattr(inner, "get_output_embeddings") and not prompt_learning
    if known and not any(getattr(inner.config, k, None) for k in AFTER_HEAD):
        head, decoder = inner.get_output_embeddings(), inner.get_decoder()
        if head is not None and decoder is not None and decoder is not inner:
            return last_states(decoder, index, ids), head
    out = outer(input_ids=ids, use_cache=False) if hasattr(outer, "config") else outer(ids)
    return getattr(out, "logits", out).flatten(0, 1)[index], lambda x: x


def _vocabulary(model: nn.Module, features: Tensor) -> int:
    config = getattr(model, "config", None)
    return int(getattr(config, "vocab_size", None) or features.shape[-1])
