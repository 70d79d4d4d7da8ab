"""The shop's search: BM25 as Lucene computes it, over an index on disk that is mapped into memory and shared by threads and processes.

    build([("B000", "red cotton shirt"), ("B001", "blue shirt")], folder)
    [(row, score), *_] = Index(folder).search("red shirts")

It is our own because the order must be Lucene's, and bm25s, tantivy and the like take a document's length as it is, where Lucene keeps it in one
byte: with the exact length every second of the recorded searches has other products, or another order, among its ten best.

score(q, d) = Σ_t w_t − w_t / (1 + tf / (k1 (1 − b + b |d|′ / avgdl))),  w_t = (times t is in q) · ln(1 + (N − df + ½) / (df + ½)), each term in
float32 and their sum in float64, as there; N counts the documents that have a term. Equal scores come in the order of their document ids.
"""

from __future__ import annotations

import json
import math
import mmap
from bisect import bisect_left
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentgym import lucene

from .postings import FILES, FORMAT, build

__all__ = ["Index", "build"]

MAX_TERMS = 1024  # Lucene's limit to the terms of a query
_SHORT = 1 << 9  # postings of a term that is kept unpacked, and
_KEPT, _OVERHEAD = 1 << 19, 24  # how many postings are kept in all (16 bytes each), and how many a term itself counts for
_SLICE = 1 << 15  # postings that are unpacked at once: they stay in the processor's cache
_SMALL = 1 << 14  # documents of which all are candidates
_SAMPLE = 1 << 13  # documents of a term that tell what score is needed in a larger index
Array = np.ndarray[Any, Any]


class _Term(NamedTuple):
    """A term of a query: numbers of its documents, ascending, with their codes; or, if they are few, with what it adds to the score of each."""

    weight: np.float32
    numbers: Array
    codes: Array
    added: Array | None


class Index:
    """An index that `build` wrote. Pickles as its path; may be used by several threads."""

    def __init__(self, folder: Path | str) -> None:
        """Map the index that lies in `folder`. Raises ValueError or OSError when it is not whole."""
        self.folder = Path(folder)
        meta = json.loads((self.folder / "meta.json").read_bytes())
        if not isinstance(meta, dict) or meta.get("format") != FORMAT or set(meta.get("files", ())) != set(FILES):
            raise ValueError(f"{self.folder / 'meta.json'} describes no index of format {FORMAT}")
        at = {name: _mapped(self.folder / name, *meta["files"][name]) for name in FILES}
        self._order, self._numbers, self._codes, self._factors = (at[name] for name in ("order", "numbers", "codes", "factors"))
        self._starts, self._ends, self._ids, self._words = (at[name].data for name in ("starts", "ends", "ids", "words"))
        self._filled = int(meta["filled"])
        self._terms: dict[tuple[str, int], _Term | None] = {}
        self._kept = 0
        self._free: list[Array] = []  # accumulators that are all zero

    def __reduce__(self) -> tuple[type[Index], tuple[Path]]:
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return len(self._order)

    def search(self, query: str, k: int = 50) -> list[tuple[int, float]]:
        """Return (row, score) of the at most `k` best documents, the best first; a row is the place in the order of building.

        Of a query with more than 1,024 different terms, at which Lucene fails, the first 1,024 count.
        """
        if k < 1:
            raise ValueError(f"k is {k}; expected at least 1")
        asked = Counter(lucene.terms(query))
        terms = [term for pair in islice(asked.items(), MAX_TERMS) if (term := self._term(pair))]
        if not terms:
            return []
        scores = self._free.pop() if self._free else np.zeros(len(self))
        self._add(terms, scores)
        numbers = (scores > (_enough(terms, scores, k) if len(self) > _SMALL else 0.0)).nonzero()[0]
        keys = (scores[numbers].astype(np.float32).view(np.int32).astype(np.int64) << 32) | numbers  # floats > 0 sort as their bits do
        scores.fill(0)
        self._free.append(scores)
        if len(keys) > k:
            keys = np.partition(keys, len(keys) - k)[-k:]
        keys = np.sort(keys)[::-1]
        rows, bits = self._order[keys & 0xFFFFFFFF], (keys >> 32).astype(np.int32)
        return list(zip(rows.tolist(), bits.view(np.float32).tolist(), strict=True))

    def _add(self, terms: list[_Term], scores: Array) -> None:
        """Add up the scores of all documents."""
        short = [t for t in terms if t.added is not None]
        for i in range(0, len(short), 16):
            some = short[i : i + 16]
            np.add.at(scores, np.concatenate([t.numbers for t in some]), np.concatenate([t.added for t in some]))
        for term in terms:
            if term.added is None:
                added = _added(term.weight, self._factors)
                for i in range(0, len(term.numbers), _SLICE):
                    np.add.at(scores, term.numbers[i : i + _SLICE].astype(np.int64), added.take(term.codes[i : i + _SLICE], mode="clip"))

    def _term(self, asked: tuple[str, int]) -> _Term | None:
        """Return a term, given how often the query has it; None where no document has it."""
        if asked in self._terms:
            return self._terms[asked]
        if self._kept > _KEPT:
            self._terms, self._kept = {}, 0
        term = self._terms[asked] = self._looked_up(*asked)
        self._kept += _OVERHEAD + (len(term.numbers) if term and term.added is not None else 0)
        return term

    def _looked_up(self, word: str, times: int) -> _Term | None:
        name = word.encode()
        place = bisect_left(range(len(self._ids)), name, key=self._word)
        if place == len(self._ids) or self._word(place) != name:
            return None
        start, end = self._starts[self._ids[place] : self._ids[place] + 2]
        numbers, codes = self._numbers[start:end], self._codes[start:end]
        df = end - start
        weight = np.float32(times) * np.float32(math.log(1 + (self._filled - df + 0.5) / (df + 0.5)))
        if df > _SHORT:
            return _Term(weight, numbers, codes, None)
        return _Term(weight, numbers.astype(np.int64), codes, _added(weight, self._factors.take(codes, mode="clip")))

    def _word(self, place: int) -> bytes:
        return bytes(self._words[self._ends[place] : self._ends[place + 1]])


def _added(weight: np.float32, factors: Array) -> Array:
    """Return what a term adds to the scores of documents with these factors, each step in float32."""
    return (weight - weight / (np.float32(1) + factors)).astype(np.float64)


def _enough(terms: list[_Term], scores: Array, k: int) -> float:
    """Return a score that is below that of the `k` best: below the k-th best of some of one term's documents."""
    found = 0.0
    for term in terms:
        some = scores[term.numbers[:_SAMPLE]]
        if len(some) >= k:
            found = max(found, float(np.partition(some, len(some) - k)[len(some) - k]))
    return found * (1 - 1e-6)  # what is equal in float32 may be less in float64


def _mapped(file: Path, kind: str, size: int) -> Array:
    """Return the values of a file without reading them."""
    if file.stat().st_size != size * np.dtype(kind).itemsize:
        raise ValueError(f"{file} has {file.stat().st_size:,} bytes where {size:,} values of {kind} were written")
    if not size:  # an empty file cannot be mapped
        return np.empty(0, kind)
    with open(file, "rb") as f:
        return np.frombuffer(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ), kind)
