"""Attention over a tree of sequences: each cell sees itself, the cells before it in its branch, and the branches above it.

On a CPU: the fused causal kernel over every branch, the same kernel without a mask of all cells below a stem over the stem (both are slices,
since a tree lies in depth-first order), and one softmax out of these parts by their log-sum-exps. Nothing is repeated for the sequences that
share a stem, and no mask is built. The backward kernel gets the joint output and log-sum-exp, which makes its results the exact shares of the
whole gradient. On a GPU: FlexAttention with a block mask.

Legend: C cells, H query heads, K key-value heads, G = H / K, D head dimension; a bucket has B branches of at most L cells.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface

from agentgym.errors import PolicyError

from .last_layer import last_states
from .prefix import Stem, Tree

NAME = "agentgym_tree"
_BLOCK = 128  # cells of a side of a block of the GPU's mask
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def hidden(decoder: Any, tree: Tree, cells: Tensor) -> Tensor:
    """Return [m, D] the last hidden states of some cells [m] of a tree under a transformers decoder, with gradient."""
    plan = _Plan(_buckets(tree.branches), tree.stems, None) if tree.ids.device.type == "cpu" else _Plan((), (), block_mask(tree.end))
    with _attention(decoder.config):
        out = last_states(decoder, cells, tree.ids[None], position_ids=tree.position[None], tree=plan)
    if out.requires_grad:
        out.register_hook(functools.partial(_recompute, decoder.config))
    return out


@contextlib.contextmanager
def _attention(config: Any) -> Iterator[None]:
    """Let the model of this config attend to trees."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def _recompute(config: Any, gradient: Tensor) -> None:
    """Let layers that are computed again in the backward pass (gradient checkpointing) attend to trees until it ends."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    torch.autograd.Variable._execution_engine.queue_callback(lambda: setattr(config, "_attn_implementation", before))


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree: _Plan,
    scaling: float | None = None,
    dropout: float = 0.0,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attend within the tree: query [1, H, C, D], key and value [1, K, C, D] → [1, C, H, D]. Raises PolicyError on what is not implemented."""
    odd = [n for n in ("softcap", "s_aux", "sliding_window") if rest.get(n) is not None] + ["dropout"] * (dropout > 0)
    if odd:
        raise PolicyError(f"the attention of {type(module).__name__} uses {', '.join(odd)}; set update.shared_prefix=never for this model")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if tree.mask is not None:
        return flex(query, key, value, tree.mask, scale).transpose(1, 2), None
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return _Cascade.apply(q, k, v, tree, scale)[None], None  # type: ignore[no-untyped-call]


AttentionInterface.register(NAME, attend)


# -- GPU -------------------------------------------------------------------------------------------------------------------------------


def block_mask(end: Tensor) -> BlockMask:
    """Return the mask of a tree, q sees k where k ≤ q < end[k], without the [C, C] of it; end [C] as in Tree.

    A block of queries i and one of keys j: something is seen where i = j, or i > j and a branch of j reaches into i; all of it is where every
    branch of j goes on beyond i.
    """
    n = len(end)
    blocks = -(-n // _BLOCK)
    padded = F.pad(end, (0, blocks * _BLOCK - n)).view(blocks, _BLOCK)  # a cell that is not there is seen by nobody
    i = torch.arange(blocks, device=end.device)[:, None]
    below = i > i.T
    some = (padded.amax(1) > i * _BLOCK) & below | (i == i.T)
    full = (padded.amin(1) >= (i + 1) * _BLOCK) & below  # never the last, incomplete block: its bounds are checked with the mask

    def see(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q < end[k])

    return BlockMask.from_kv_blocks(*_listed(some & ~full), *_listed(full), BLOCK_SIZE=_BLOCK, mask_mod=see, seq_lengths=(n, n))


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many blocks each row has [1, 1, rows], and their columns in front [1, 1, rows, columns]."""
    columns = blocks.int().argsort(dim=1, descending=True, stable=True)
    return blocks.sum(1).int()[None, None], columns.int()[None, None].contiguous()


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True)


def flex(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Tensor:
    """Return [1, H, C, D]: FlexAttention, compiled on a GPU; the same formula step by step, and without a gradient, on a CPU."""
    run: Any = _compiled() if query.is_cuda else flex_attention
    out: Tensor = run(query, key, value, block_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1])
    return out


# -- CPU -------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bucket:
    """Branches of similar length, attended to in one call.

    take [B, L]  the cell of each query; one that is padding points at the last cell of its branch
    run          the first cell, when `take` is exactly the cells that follow it
    real         which of the flattened [B · L] are no padding, when some are
    """

    take: Tensor
    run: int | None
    real: Tensor | None

    def get(self, x: Tensor, groups: int = 1) -> Tensor:
        """Return [B, groups · heads, L, …] out of [C, heads, …]."""
        rows = x[self.run : self.run + self.take.numel()].unflatten(0, self.take.shape) if self.run is not None else x[self.take]
        return (rows if groups == 1 else rows.repeat_interleave(groups, 2)).transpose(1, 2)

    def put(self, out: Tensor, rows: Tensor) -> None:
        """Write [B, heads, L, …] to its places in `out` [C, heads, …]."""
        flat = rows.transpose(1, 2).reshape(-1, *out.shape[1:])
        if self.run is not None:
            out[self.run : self.run + len(flat)] = flat
        elif self.real is not None:
            out[self.take.view(-1)[self.real]] = flat[self.real]
        else:
            out[self.take.view(-1)] = flat

    def mute(self, rows: Tensor) -> Tensor:
        """Return [B, heads, L, …] with 0 where there is padding."""
        if self.real is None:
            return rows
        keep = torch.zeros(self.take.numel(), dtype=torch.bool)
        keep[self.real] = True
        return rows.masked_fill(~keep.view(len(self.take), 1, -1, *[1] * (rows.dim() - 3)), 0)


@dataclass(frozen=True)
class _Plan:
    """How a pass attends: by buckets and stems on a CPU, by a mask on a GPU."""

    buckets: tuple[_Bucket, ...]
    stems: tuple[Stem, ...]
    mask: BlockMask | None


def _buckets(branches: Tensor) -> tuple[_Bucket, ...]:
    """Group branches [B, 2] (first cell, length) so that little is padded."""
    start, length = branches.numpy().T
    order = np.lexsort((start, length))
    start, length = start[order], length[order]
    out, i = [], 0
    while i < len(length):
        j = int(np.searchsorted(length, 1.2 * length[i] + 4, side="right"))
        width = int(length[j - 1])
        step = np.arange(width)
        take = start[i:j, None] + np.minimum(step, length[i:j, None] - 1)
        real = (step < length[i:j, None]).ravel().nonzero()[0]
        run = int(take[0, 0]) if np.array_equal(take.ravel(), take[0, 0] + np.arange(take.size)) else None
        out.append(_Bucket(torch.from_numpy(take), run, torch.from_numpy(real) if len(real) < take.size else None))
        i = j
    return tuple(out)


def _fold(x: Tensor, heads: int) -> Tensor:
    """Return [K, G, n, …] a view of [n, H, …]: query heads that share a key-value head side by side, so that nothing is repeated."""
    rows = x.unflatten(1, (heads, -1))
    return rows.permute(1, 2, 0, *range(3, rows.dim()))


def _unfold(x: Tensor) -> Tensor:
    """Return [n, H, …] of [K, G, n, …]."""
    return x.permute(2, 0, 1, *range(3, x.dim())).flatten(1, 2)


def _spread(x: Tensor, groups: int) -> Tensor:
    """Return [K, G, n, D] a view of [n, K, D]."""
    return x.transpose(0, 1)[:, None].expand(-1, groups, -1, -1)


class _Cascade(torch.autograd.Function):
    """(q [C, H, D], k, v [C, K, D]) → [C, H, D]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan, scale: float) -> Tensor:
        heads, groups = k.shape[1], q.shape[1] // k.shape[1]
        out, lse = q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)
        for b in plan.buckets:
            o, s = _flash(b.get(q), b.get(k, groups), b.get(v, groups), 0.0, True, scale=scale)
            b.put(out, o)
            b.put(lse, s)
        for start, stop, end in plan.stems:
            o, s = _flash(_fold(q[stop:end], heads), _spread(k[start:stop], groups), _spread(v[start:stop], groups), 0.0, False, scale=scale)
            _merge(out[stop:end], lse[stop:end], _unfold(o), _unfold(s))
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.plan, ctx.scale = plan, scale
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        heads, groups, scale = k.shape[1], q.shape[1] // k.shape[1], ctx.scale
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        for b in ctx.plan.buckets:
            dense = b.get(q), b.get(k, groups), b.get(v, groups), b.get(out), b.get(lse)
            gq, gk, gv = _flash_backward(b.mute(b.get(grad)), *dense, 0.0, True, scale=scale)
            b.put(dq, gq)
            b.put(dk, gk.unflatten(1, (heads, groups)).sum(2))
            b.put(dv, gv.unflatten(1, (heads, groups)).sum(2))
        for start, stop, end in ctx.plan.stems:
            above = _spread(k[start:stop], groups), _spread(v[start:stop], groups)
            folded = [_fold(x[stop:end], heads) for x in (grad, q, out, lse)]
            gq, gk, gv = _flash_backward(folded[0], folded[1], *above, folded[2], folded[3], 0.0, False, scale=scale)
            dq[stop:end] += _unfold(gq)
            dk[start:stop] += gk.sum(1).transpose(0, 1)
            dv[start:stop] += gv.sum(1).transpose(0, 1)
        return dq, dk, dv, None, None


def _merge(out: Tensor, lse: Tensor, o: Tensor, s: Tensor) -> None:
    """Make one softmax of two over different keys, in place: out, o [n, H, D] with the log-sum-exps lse, s [n, H]."""
    both = torch.logaddexp(lse, s)
    out.mul_((lse - both).exp().to(out.dtype)[..., None]).addcmul_(o, (s - both).exp().to(out.dtype)[..., None])
    lse.copy_(both)
