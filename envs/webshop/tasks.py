"""Which goals are the tasks of a split: their ids, and what holds train and test apart."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentgym.errors import EnvError, TaskError, did_you_mean

from .goals import Goals

Split = Literal["all", "train", "eval", "test"]
SPLITS: tuple[Split, ...] = ("all", "train", "eval", "test")
OFFICIAL = {"test": (0, 500), "eval": (500, 1500), "train": (1500, None)}  # positions among the human goals of the full data
_WHOLE = 2_000  # so many human goals are the full data (12,087), fewer the small set (13)
_BUCKETS = {"test": (0, 10), "eval": (10, 20), "train": (20, 100)}  # hundredths of all products


class Tasks:
    """The tasks of a split: `set/number`, for example synthetic/457.

    The full data's human goals are split as in the original, by position. All others are split by product: no product is the goal of
    two splits, and one that is added moves no other.
    """

    def __init__(self, sets: Sequence[Goals], split: str, limit: int | None = None) -> None:
        """Take the goals of a split, of each set the first `limit` only (goals stand in a fixed random order)."""
        self.sets, self.split = {g.kind: g for g in sets}, split
        self.members = {g.kind: members(g, split)[:limit] for g in sets}
        if not len(self):
            sizes = ", ".join(f"{s} {sum(len(members(g, s)) for g in sets)}" for s in SPLITS)
            kinds = ", ".join(f"{len(g):,} {g.kind}" for g in sets)
            raise EnvError(
                f"webshop: split {split!r} has no goals. These data have {kinds} goals, by split: {sizes}. The small set of 1,000 products "
                "has 13 human goals only: take goals='synthetic', split='all', or the full data"
            )

    def __len__(self) -> int:
        return sum(map(len, self.members.values()))

    def ids(self) -> list[str]:
        """Return all ids, in the order of the goals."""
        return [f"{kind}/{i}" for kind, found in self.members.items() for i in found]

    def find(self, id: object) -> tuple[Goals, int]:
        """Return the goal set and number of an id. Raises TaskError where this split has no such task."""
        kind, _, number = id.partition("/") if isinstance(id, str) else ("", "", "")
        if kind in self.sets and number.isascii() and number.isdigit() and str(int(number)) == number:
            found, i = self.members[kind], int(number)
            at = int(np.searchsorted(found, i))
            if at < len(found) and found[at] == i:
                return self.sets[kind], i
        some = next(f"{kind}/{found[0]}" for kind, found in self.members.items() if len(found))
        hint = f"there are {len(self.sets[kind]):,} such goals, which all splits share" if kind in self.sets else "it is no id of these data"
        raise TaskError(f"webshop: split {self.split!r} ({len(self):,} tasks) has no task {id!r}: {hint}. An id looks like {some}")

    @functools.cached_property
    def _cumulative(self) -> tuple[list[tuple[Goals, np.ndarray]], np.ndarray]:
        parts = [(self.sets[kind], found) for kind, found in self.members.items()]
        return parts, np.cumsum(np.concatenate([g.weights[found] for g, found in parts]))

    def draw(self, u: float) -> tuple[Goals, int]:
        """Return the goal at `u` (0 ≤ u < 1) of the split's total weight: goals of rare attributes are drawn more often, as in the original."""
        parts, total = self._cumulative
        at = int(np.searchsorted(total, u * total[-1], side="right"))
        for goals, found in parts:
            if at < len(found):
                return goals, int(found[at])
            at -= len(found)
        return parts[-1][0], int(parts[-1][1][-1])


def members(goals: Goals, split: str) -> np.ndarray:
    """Return the numbers of a set's goals that are in a split, ascending."""
    if split not in SPLITS:
        raise EnvError(f"webshop: there is no split {split!r}.{did_you_mean(split, SPLITS)} Splits: {', '.join(SPLITS)}")
    if split == "all":
        return np.arange(len(goals))
    if goals.kind == "human" and len(goals) >= _WHOLE:
        return np.arange(len(goals))[slice(*OFFICIAL[split])]
    low, high = _BUCKETS[split]
    buckets = goals.asin_bucket()
    return np.flatnonzero((buckets >= low) & (buckets < high))
