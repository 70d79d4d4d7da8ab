"""Beginnings that several sequences have in common, found by token ids alone, and micro-batches in which each is computed once.

N sequences of P shared and R own tokens are N(P + R) tokens to a model that reads them one by one, and P + NR cells here (as DualKV,
arXiv 2605.15422). Nothing is approximated: a token's state depends on the ids before it only, so equal beginnings have equal states, and the
gradients of all that read them add up. Sharing nests: a task's prompt, then the steps of an episode under a window context that begin alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError, did_you_mean

Choice = Literal["auto", "always", "never"]
# Models that change the logits after the head; for these the whole forward is used.
AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
# A shared beginning costs a call of the attention kernel in each layer, and a few passes over the outputs of all cells behind it.
_LEAST = 64  # tokens that it must save at least
_SHARE = 0.15  # of the tokens behind it, which it must save at least: where sharing gains with 1 to 6 million parameters


class Stem(NamedTuple):
    """Cells `start` … `stop` − 1, which the cells `stop` … `end` − 1 all have before them."""

    start: int
    stop: int
    end: int


@dataclass(frozen=True)
class Tree:
    """Some sequences as the cells of a tree: one cell for each different beginning of a branch, in depth-first order.

    C cells, M tokens of the sequences; what is below a cell follows it without a gap.
    ids, position [C]   token id; index inside its sequences
    end [C]             the first cell that is not below this one's branch: q sees k where k ≤ q < end[k]
    at, index [M]       the cell of each token; the flat tokens (of N), one sequence after the other
    length [sequences]  tokens of each
    branches [B, 2]     first cell and length of each branch: a run of cells without a fork
    stems               the branches that have others below them
    """

    ids: Tensor
    position: Tensor
    end: Tensor
    at: Tensor
    index: Tensor
    length: Tensor
    branches: Tensor
    stems: tuple[Stem, ...]

    @property
    def token(self) -> Tensor:
        """[M] the ids."""
        return self.ids[self.at]

    @property
    def first(self) -> Tensor:
        """[M] bool: the first token of its sequence, which nothing predicts."""
        return self.position[self.at] == 0

    @property
    def cells(self) -> int:
        """How many tokens the model computes."""
        return self.ids.numel()

    @property
    def padding(self) -> int:
        """How many of them are nobody's."""
        return 0

    def segment(self) -> Tensor:
        """Return [M] the sequence of each token."""
        return torch.arange(len(self.length), device=self.length.device).repeat_interleave(self.length)

    def to(self, device: torch.device) -> Tree:
        """Return the tree on another device; `branches` stay, since they are read by the host."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name not in ("branches", "stems")}
        return replace(self, **moved)


def why_not(model: nn.Module) -> str | None:
    """Return why the beginnings of sequences cannot be shared in a pass of `model`, or None when they can."""
    outer: Any = model
    name = type(model).__name__
    inner = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    decoder = inner.get_decoder() if hasattr(inner, "get_decoder") else None
    config = getattr(decoder, "config", None)
    kind = next((p.device.type for p in model.parameters()), "cpu")
    if decoder is None or decoder is inner or not getattr(inner, "_supports_attention_backend", False):
        return f"the attention of a {name} is not exchangeable in transformers"
    if inner.get_output_embeddings() is None or any(getattr(inner.config, k, None) for k in AFTER_HEAD):
        return f"a {name} changes its logits after the output head, or hides it"
    if getattr(getattr(outer, "active_peft_config", None), "is_prompt_learning", False):
        return "its adapters put learnt tokens in front of the prompt"
    if odd := set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return f"a {name} has {', '.join(sorted(odd))} layers, only full attention is implemented"
    for key in ("sliding_window", "attn_logit_softcapping", "v_head_dim"):
        if getattr(config, key, None) is not None:
            return f"the attention of a {name} has {key}={getattr(config, key)}, which is not implemented"
    return None if kind in ("cpu", "cuda") else f"there is no kernel for the device {kind!r}"


def shares(model: nn.Module, choice: str) -> bool:
    """Return whether `update.shared_prefix=choice` means sharing for this model. Raises ConfigError where it cannot be honoured."""
    if choice not in get_args(Choice):
        hint = did_you_mean(choice, get_args(Choice))
        raise ConfigError(f"update.shared_prefix is {choice!r}.{hint} Known: {', '.join(get_args(Choice))}")
    reason = None if choice == "never" else why_not(model)
    if choice == "always" and reason:
        raise ConfigError(f"update.shared_prefix=always: {reason}; use auto (shared where the model can) or never")
    return choice != "never" and reason is None


def common(token: np.ndarray, start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (order [R] of the sequences by their ids, [R − 1] how many ids each has in common with the next one in that order)."""
    big = token.astype(">i8")  # compares as bytes in the order of the numbers
    keys = [big[a : a + n].tobytes() for a, n in zip(start.tolist(), length.tolist(), strict=True)]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    same = np.zeros(max(len(order) - 1, 0), dtype=np.int64)
    for i in range(len(same)):
        a, b = order[i], order[i + 1]
        n = int(min(length[a], length[b]))
        differ = token[start[a] : start[a] + n] != token[start[b] : start[b] + n]
        same[i] = differ.argmax() if differ.any() else n
    return order, same


def worth(same: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return [R − 1] how many ids each sequence shares with the next one: as many as they have in common where that pays, else fewer or none.

    same, length: of sequences in the order of their ids. From the root down: a common beginning is shared when what it saves beyond the ones
    around it outweighs its cost; those inside of it are asked afterwards, whether it is shared or not.
    """
    out = np.zeros_like(same)
    todo = [(0, len(length), 0)]  # sequences i … j − 1, whose first d ids are shared already
    while todo:
        i, j, d = todo.pop()
        if j - i < 2:
            continue
        inside = same[i : j - 1]
        m = int(inside.min())
        saved = (m - d) * (j - i - 1)
        if saved >= _LEAST and saved >= _SHARE * int((length[i:j] - m).sum()):
            out[i : j - 1] = d = m
        bounds = [i, *(i + 1 + np.flatnonzero(inside == m)).tolist(), j]
        todo += [(a, b, d) for a, b in pairwise(bounds)]
    return out


def cuts(length: Sequence[int], shared: Sequence[int], budget: int) -> list[tuple[int, int]]:
    """Cut sequences into runs [i, j) of at most `budget` cells (at least one sequence each), between sequences that share little."""
    out, first = [], 0
    while first < len(length):
        cells, last, best = length[first], first + 1, 0
        ends = [(cells, last)]
        while last < len(length) and cells + length[last] - shared[last - 1] <= budget:
            cells += length[last] - shared[last - 1]
            last += 1
            ends.append((cells, last))
        if last < len(length):  # full: the best place in its second half; what is cut apart is computed twice
            late = [e for c, e in ends if 2 * c >= budget] or [last]
            best = min(late, key=lambda e: (shared[e - 1], -e))
        out.append((first, best or last))
        first = best or last
    return out


def grow(token: np.ndarray, start: np.ndarray, length: np.ndarray, shared: np.ndarray) -> Tree:
    """Build the tree of sequences in the order of their ids; shared [R − 1]: how many ids each shares with the next one."""
    after = [*shared.tolist(), 0]
    runs: list[tuple[int, int, int]] = []  # per branch: its first cell, where its ids are in `token`, how many
    open_: list[tuple[int, int, int]] = []  # branch, and the depths that it spans
    ends: dict[int, int] = {}  # of the branches that were open
    at, cells = [], 0
    for k, (begin, n) in enumerate(zip(start.tolist(), length.tolist(), strict=True)):
        depth = after[k - 1] if k else 0
        while open_ and open_[-1][2] > depth:
            ends[open_.pop()[0]] = cells
        for stop in [*_forks(after, k, depth), n]:
            if stop > depth:
                open_.append((len(runs), depth, stop))
                runs.append((cells, begin + depth, stop - depth))
                cells, depth = cells + stop - depth, stop
        at += [np.arange(runs[b][0], runs[b][0] + runs[b][2]) for b, _, _ in open_]
    ends |= {b: cells for b, _, _ in open_}
    where = np.concatenate([np.arange(a, a + n) for _, a, n in runs])
    origin = np.concatenate([np.arange(n) for n in length])
    index = origin + np.repeat(start, length)
    cell_of = np.concatenate(at)
    position = np.zeros(cells, dtype=np.int64)
    position[cell_of] = origin
    count = np.array([n for _, _, n in runs])
    return Tree(
        ids=torch.from_numpy(token[where]),
        position=torch.from_numpy(position),
        end=torch.from_numpy(np.repeat([ends[b] for b in range(len(runs))], count)),
        at=torch.from_numpy(cell_of),
        index=torch.from_numpy(index),
        length=torch.from_numpy(length),
        branches=torch.tensor([(a, n) for a, _, n in runs]),
        stems=tuple(Stem(a, a + n, ends[b]) for b, (a, _, n) in enumerate(runs) if ends[b] > a + n),
    )


def _forks(after: Sequence[int], k: int, depth: int) -> list[int]:
    """Return the depths beyond `depth`, ascending, at which a later sequence leaves the path of sequence k."""
    out: list[int] = []
    for s in after[k:]:
        if s <= depth:
            break
        if not out or s < out[-1]:
            out.append(s)
    return out[::-1]


def trees(token: np.ndarray, start: np.ndarray, length: np.ndarray, budget: int) -> tuple[list[Tree], np.ndarray]:
    """Return (trees of at most `budget` cells that hold the sequences which share something, [≤ R] the sequences that share nothing)."""
    order, same = common(token, start, length)
    shared = worth(same, length[order])
    alone = ~(np.append(shared, 0) > 0) & ~(np.append(0, shared) > 0)
    some, found = order[~alone], []
    kept = np.flatnonzero(~alone)
    between = shared[kept[:-1]]  # sequences that share nothing leave no gap inside a tree: what precedes them shares nothing with them either
    for i, j in cuts(length[some].tolist(), between.tolist(), budget):
        found.append(grow(token, start[some[i:j]], length[some[i:j]], between[i : j - 1]))
    return found, np.sort(order[alone])


def tree_batches(token: Tensor, length: Tensor, budget: int) -> tuple[Iterator[Tree], Tensor]:
    """Return (trees on the device of `token`, the sequences that share nothing); token [N], length [R] of the sequences in it."""
    n = length.cpu().numpy()
    found, alone = trees(token.cpu().numpy(), n.cumsum() - n, n, budget)
    return (t.to(token.device) for t in found), torch.from_numpy(alone).to(token.device)
