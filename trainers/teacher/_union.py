"""The most likely next tokens of two contexts, and what one of them gives each: chunked, so that no [N, V] ever exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from ..batch import Batch
from ..forward import states
from ..hindsight import Context, rectangles
from ..streams import Round

_LOGITS = 2**22  # logits at a time: 16 MB
_ROWS = 2048  # tokens at a time, for small vocabularies


def _logits(model: nn.Module, contexts: Sequence[Context], batch: Batch, wanted: Tensor, round: Round) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (index of tokens [m] in the batch, logits [m, V] that they are drawn from), of the wanted tokens in their contexts."""
    device = next(model.parameters()).device
    for rows, source, scored in rectangles(contexts, batch, wanted, round.budget, device, share=round.share):
        x, head = states(model, rows, rows.at[scored.nonzero()[:, 0] - 1])
        index = source[scored]
        step = chunk(model, head, x)
        for part, where in zip(x.split(step), index.split(step), strict=True):
            yield where, head(part).float() / round.temperature


def chunk(model: nn.Module, head: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """Return how many tokens of x [m, D] go through the head at once."""
    vocabulary = int(getattr(getattr(model, "config", None), "vocab_size", 0) or head(x[:1]).shape[-1])
    return max(1, min(_ROWS, _LOGITS // vocabulary))


@torch.no_grad()
def union(
    model: nn.Module, plain: Sequence[Context], hinted: Sequence[Context], batch: Batch, wanted: Tensor, k: int, round: Round
) -> tuple[Tensor, Tensor]:
    """Return (ids [N, 2k] int32, log-probabilities [N, 2k] in the hinted contexts): the k most likely tokens there, and in the plain ones.

    An id that is in both lists counts once: its second place has −inf, and so has everything outside of the wanted tokens.
    """
    ids = torch.zeros(batch.n_tokens, 2 * k, dtype=torch.int32)
    logq = torch.full((batch.n_tokens, 2 * k), -torch.inf)
    for index, logits in _logits(model, plain, batch, wanted, round):
        ids[index.cpu(), k:] = logits.topk(k).indices.int().cpu()
    for index, logits in _logits(model, hinted, batch, wanted, round):
        theirs, own = logits.topk(k).indices, ids[index.cpu(), k:].to(logits.device).long()
        both = torch.cat([theirs, own], 1)
        found = logits.gather(1, both) - logits.logsumexp(1, keepdim=True)
        found[:, k:].masked_fill_((own[:, :, None] == theirs[:, None, :]).any(-1), -torch.inf)
        ids[index.cpu()], logq[index.cpu()] = both.int().cpu(), found.cpu()
    return ids, logq
