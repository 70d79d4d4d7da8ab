"""Keys and values of many conversations in one block of memory, and the attention that reads them without copying or padding.

A forward pass gets the new tokens of all rows packed behind each other, [1, N]: linear layers and norms never see
padding. Only attention knows about rows. Legend: N packed tokens, R rows, S new tokens of a row (padded in its group),
T cached positions, H query heads, K key-value heads, G = H / K, D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from agentgym.errors import PolicyError

from ._seats import Feed

NAME = "agentgym_slots"


class Slots:
    """One slot per conversation: `keys[layer]` and `values[layer]` are [slots, K, T, D], allocated and doubled as needed."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.rows = 0
        self.length = 0

    def reserve(self, rows: int, length: int) -> None:
        """Make room for slots 0..rows-1 of `length` positions; the cost of copying is amortised by doubling."""
        if rows <= self.rows and length <= self.length:
            return
        self.rows = max(self.rows, 8) if rows <= self.rows else max(rows, 2 * self.rows)
        self.length = max(self.length, 128) if length <= self.length else max(-(-length // 64) * 64, 2 * self.length)
        for block in (self.keys, self.values):
            for i, old in enumerate(block):
                # Zeros, not garbage: a masked position has weight 0, and 0 times NaN is NaN.
                block[i] = old.new_zeros(self.rows, old.shape[1], self.length, old.shape[3])
                block[i][: old.shape[0], :, : old.shape[2]] = old

    def copy(self, source: int, target: int, length: int) -> None:
        """Let slot `target` begin with the first `length` positions of slot `source`."""
        for block in (*self.keys, *self.values):
            block[target, :, :length] = block[source, :, :length]

    def write(self, layer: int, key: Tensor, value: Tensor, slot: Tensor, position: Tensor) -> None:
        """Store key and value [K, N, D] of the packed tokens at (slot, position), both [N]."""
        if layer == len(self.keys):
            shape = (self.rows, key.shape[0], self.length, key.shape[2])
            self.keys.append(key.new_zeros(shape))
            self.values.append(value.new_zeros((*shape[:3], value.shape[2])))
        self.keys[layer][slot, :, position] = key.transpose(0, 1)
        self.values[layer][slot, :, position] = value.transpose(0, 1)


@dataclass(slots=True)
class Group:
    """Rows of similar length that attend together.

    slots  [R], or None for a view of the slots 0..R-1: nothing is copied
    run    (start, stop) when the packed tokens start..stop-1 are exactly the R * S queries in order, else None, and
           then
    take   [R, S] packed index of each query; a padding query points at another token of its row
    real   [n] which of the flattened [R * S] are no padding
    mask   [R, 1, 1, S, T] 0 where a query may look, -inf elsewhere
    """

    slots: Tensor | None
    run: tuple[int, int] | None
    take: Tensor
    real: Tensor
    mask: Tensor

    def gather(self, packed: Tensor) -> Tensor:
        """Return [R, S, ...] out of [N, ...]."""
        return packed[self.take] if self.run is None else packed[slice(*self.run)].unflatten(0, self.take.shape)

    def scatter(self, out: Tensor, rows: Tensor) -> None:
        """Write [R, S, ...] back into its places of `out` [N, ...]."""
        rows = rows.reshape(-1, *out.shape[1:])
        if self.run is None:
            out[self.take.view(-1)[self.real]] = rows[self.real]
        else:
            out[slice(*self.run)] = rows


@dataclass(slots=True)
class Plan:
    """What one forward pass feeds: `ids`, `position`, `slot` are [N]; `last` [R] is the packed index of each row's last token."""

    cache: Slots
    ids: Tensor
    position: Tensor
    slot: Tensor
    last: Tensor
    groups: list[Group]


def make_plan(cache: Slots, feeds: Sequence[Feed], used: int, dtype: torch.dtype, device: torch.device) -> Plan:
    """Plan a pass over `feeds`, sorted by their number of ids; the slots 0..used-1 may hold conversations."""
    # numpy, not torch: on arrays this small a torch operation costs several times as much.
    first = np.array([f.first for f in feeds])
    count = np.array([len(f.ids) for f in feeds])
    slot = np.array([f.slot for f in feeds])
    start = count.cumsum() - count
    total = int(count.sum())
    ids = np.fromiter(chain.from_iterable(f.ids for f in feeds), dtype=np.int64, count=total)
    position = np.arange(total) + np.repeat(first - start, count)
    packed = torch.from_numpy(np.stack([ids, position, np.repeat(slot, count)])).to(device)
    groups = [_group(slot[a:b], first[a:b], count[a:b], start[a:b], used, dtype, device) for a, b in _group_bounds(count.tolist())]
    last = torch.from_numpy(start + count - 1).to(device)
    return Plan(cache, packed[0], packed[1], packed[2], last, groups)


def _group_bounds(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Cut ascending lengths into runs that waste little when padded; decoding rows (length 1) stay among themselves."""
    bounds, begin = [], 0
    for i, n in enumerate(lengths):
        first = lengths[begin]
        if n > (1 if first == 1 else 1.5 * first + 8):
            bounds.append((begin, i))
            begin = i
    return [*bounds, (begin, len(lengths))]


def _group(slot: np.ndarray, first: np.ndarray, count: np.ndarray, begin: np.ndarray, used: int, dtype: torch.dtype, device: torch.device) -> Group:
    """Plan the attention of some rows: each has `count` new tokens, packed from `begin` on, behind `first` positions in `slot`."""
    start, width, reach = int(begin[0]), int(count.max()), int((first + count).max())
    slots: Tensor | None = None
    if 2 * len(slot) >= used:
        # Most slots take part: attend over all of them in place, with idle queries where a slot has none, instead of
        # copying keys.
        rows = np.zeros((3, used), dtype=np.int64)
        rows[:, slot] = first, count, begin
        first, count, begin = rows
    else:
        slots = torch.from_numpy(slot).to(device)
    step = np.arange(width)
    offset = np.minimum(step, (count[:, None] - 1).clip(min=0))
    take = begin[:, None] + offset
    real = (step < count[:, None]).ravel().nonzero()[0]
    run = (start, start + take.size) if np.array_equal(take.ravel(), np.arange(start, start + take.size)) else None
    # The mask's row at position p is a window of [0 … 0, -inf … -inf] that shows p + 1 zeros: copying windows is cheaper
    # than comparing every pair.
    ramp = np.zeros(2 * reach - 1, dtype=np.float32)
    ramp[reach:] = -np.inf
    windows = np.ndarray((reach, reach), np.float32, buffer=ramp, strides=(4, 4))
    mask = torch.from_numpy(windows[reach - 1 - (first[:, None] + offset)][:, None, None]).to(device, dtype)
    return Group(slots, run, torch.from_numpy(take).to(device), torch.from_numpy(real).to(device), mask)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    plan: Plan,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Store the packed keys and values [1, K, N, D], then let the queries [1, H, N, D] attend to their own rows → [1, N, H, D]."""
    for name in ("softcap", "s_aux", "sliding_window"):
        if rest.get(name) is not None:
            raise PolicyError(f"this model's attention uses {name}, which policy 'hf' does not implement; use policy 'openai' with a server")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    plan.cache.write(layer, key[0], value[0], plan.slot, plan.position)
    keys, values = plan.cache.keys[layer], plan.cache.values[layer]
    heads, tokens, dim = query.shape[1:]
    packed = query[0].transpose(0, 1)  # [N, H, D]
    out = query.new_empty(tokens, heads, values.shape[3])
    for g in plan.groups:
        rows, width, reach = g.mask.shape[0], g.mask.shape[3], g.mask.shape[4]
        k, v = (x[:rows, :, :reach] if g.slots is None else x[g.slots, :, :reach] for x in (keys, values))
        if width > 1:  # prompts: the fused kernel never holds the scores; for single queries it is the slower one
            q = g.gather(packed).transpose(1, 2)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=g.mask[:, 0], scale=scaling, enable_gqa=True)
            g.scatter(out, o.transpose(1, 2))
            continue
        kv_heads = k.shape[1]
        # Query heads that share a key-value head become rows of one product: nothing is repeated. [R, K, G*S, D]
        q = (g.gather(packed) * scaling).view(rows, width, kv_heads, -1, dim).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, dim)
        score = torch.matmul(q, k.transpose(2, 3)).view(rows, kv_heads, -1, width, reach).add_(g.mask)
        weight = score.softmax(-1, dtype=torch.float32).to(v.dtype).view(rows, kv_heads, -1, reach)
        o = torch.matmul(weight, v).view(rows, kv_heads, -1, width, v.shape[3]).permute(0, 3, 1, 2, 4)
        g.scatter(out, o.reshape(rows, width, heads, -1))
    return out[None], None


AttentionInterface.register(NAME, attend)
