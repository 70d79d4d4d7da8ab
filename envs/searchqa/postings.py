"""The posting lists of an index, and the search for the best documents in them.

The score of a document is the sum of the weights that the query's lists hold for it. On large corpora most of the long lists is never read:
a document that no list with a high peak holds cannot reach what the best ones are known to reach (MaxScore; Turtle and Flood, 1995).
The result is the same, to the bit. Weights have 24 bits and are added in 53: such sums are exact, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .store import load_array

Array = np.ndarray[Any, Any]
_LONG = 100_000  # postings; below this, reading all of them costs less than finding out which are needed
_PILOTS = 1 / 1000  # as many documents of the shortest list as this share of all postings are scored first, for a bound


class Span(NamedTuple):
    """The documents that hold a term: a slice of the arrays, and the largest weight in it."""

    start: int
    end: int
    peak: float


class Counted(NamedTuple):
    """A term of a query: its list, and how often the query names it."""

    span: Span
    times: int

    @property
    def length(self) -> int:
        return self.span.end - self.span.start

    @property
    def most(self) -> float:
        return self.span.peak * self.times


class Postings:
    """Lists by term, each in the order of the corpus, mapped into memory."""

    def __init__(self, folder: Path, documents: int) -> None:
        self._starts, self._rows, self._weights, self._peaks = (load_array(folder / f"{n}.npy") for n in ("starts", "rows", "weights", "peaks"))
        self._documents = documents

    def span(self, term: int) -> Span:
        """Return the list of a term."""
        return Span(int(self._starts[term]), int(self._starts[term + 1]), float(self._peaks[term]))

    def best(self, query: Sequence[Counted], topk: int) -> tuple[Array, Array]:
        """Return (rows, scores) of the `topk` highest scores, the best first; equal scores in the order of the corpus."""
        enough = [c for c in query if c.length >= topk]
        if not enough:
            return _highest(*self._sum(query), topk)
        pilot = min(enough, key=lambda c: c.length)
        total = sum(c.length for c in query)
        if total + self._documents // 4 < _LONG:
            dense = self._dense(query)
            bound = np.partition(dense[self._rows[pilot.span.start : pilot.span.end]], -topk)[-topk]
        else:
            bound = self._bound(query, pilot, total, topk)
            found = self._pruned(query, bound, total)
            if found is not None:
                return _highest(*found, topk)
            dense = self._dense(query)
        rows = (dense >= bound).nonzero()[0]
        return _highest(rows, dense[rows], topk)

    def _pruned(self, query: Sequence[Counted], bound: float, total: int) -> tuple[Array, Array] | None:
        """Return every document that reaches the bound, without reading the longest lists; None where that would cost more."""
        ordered = sorted(query, key=lambda c: (-c.most, c.length))
        rest, needed = 0.0, len(ordered)
        while needed > 1 and rest + ordered[needed - 1].most < bound:  # the lists from `needed` on do not reach the bound by themselves
            needed -= 1
            rest += ordered[needed].most
        if 4 * sum(c.length for c in ordered[:needed]) > total:
            return None
        rows, scores = self._sum(ordered[:needed])
        reach = scores + rest >= bound
        rows, scores = rows[reach], scores[reach]
        if 16 * len(rows) * (len(ordered) - needed) > total:  # finding a document in a list costs as much as reading many
            return None
        for c in ordered[needed:]:
            scores = scores + self._at(c, rows)
        return rows, scores

    def _bound(self, query: Iterable[Counted], pilot: Counted, total: int, topk: int) -> float:
        """Return a score that at least `topk` documents reach: those of the shortest list that weigh most there, scored in full."""
        rows, weights = self._rows[pilot.span.start : pilot.span.end], self._weights[pilot.span.start : pilot.span.end]
        n = max(256, topk, int(total * _PILOTS))
        if len(rows) > n:
            rows = rows[np.argpartition(weights, -n)[-n:]]
        scores = sum(self._at(c, rows) for c in query)
        return float(np.partition(scores, -topk)[-topk])

    def _at(self, c: Counted, rows: Array) -> Array:
        """Return the weights that a list holds for some documents."""
        own = self._rows[c.span.start : c.span.end]
        place = np.minimum(own.searchsorted(rows), len(own) - 1)
        weights = self._weights[c.span.start : c.span.end][place].astype(np.float64)
        weights[own[place] != rows] = 0.0
        return weights * c.times

    def _sum(self, lists: Sequence[Counted]) -> tuple[Array, Array]:
        """Return (rows, scores) of every document in the lists."""
        if sum(c.length for c in lists) * 16 > self._documents:
            dense = self._dense(lists)
            rows = dense.nonzero()[0].astype(np.int32)
            return rows, dense[rows]
        # Few of many documents: sorting theirs costs less than a place for each of all.
        rows, weights = self._gather(lists, np.int64)
        key = rows << 32 | np.arange(len(rows))
        key.sort()
        rows = (key >> 32).astype(np.int32)
        first = np.diff(rows, prepend=-1).nonzero()[0]
        return rows[first], np.add.reduceat(weights[key & 0xFFFFFFFF], first)

    def _dense(self, lists: Sequence[Counted]) -> Array:
        rows, weights = self._gather(lists, np.intp)
        return np.bincount(rows, weights)

    def _gather(self, lists: Sequence[Counted], kind: type[np.signedinteger[Any]]) -> tuple[Array, Array]:
        rows = np.concatenate([self._rows[c.span.start : c.span.end] for c in lists], dtype=kind)
        parts = [self._weights[c.span.start : c.span.end] for c in lists]
        weights = np.concatenate([p if c.times == 1 else p * np.float64(c.times) for p, c in zip(parts, lists, strict=True)], dtype=np.float64)
        return rows, weights


def _highest(rows: Array, scores: Array, topk: int) -> tuple[Array, Array]:
    if len(rows) > 8 * topk:
        keep = scores >= np.partition(scores, -topk)[-topk]
        rows, scores = rows[keep], scores[keep]
    order = np.argsort(-scores, kind="stable")[:topk]
    return rows[order], scores[order]
