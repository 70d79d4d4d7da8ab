"""Builds a BM25 index on disk in two passes whose memory is bounded by the vocabulary, not by the corpus.

Pass 1 reads the documents and writes (term, document, count) in blocks; pass 2 spreads the blocks over one list per term, with weights:
w(t, d) = idf(t) · tf / (tf + k1 (1 − b + b |d| / avgdl)),  idf(t) = ln(1 + (N − df + ½) / (df + ½))      (BM25 as Lucene has it)
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from agentgym.errors import DataError

from .corpus import Document
from .store import Writer
from .terms import Stems, words

Array = np.ndarray[Any, Any]
_BLOCK = 20_000  # documents


class Parameters(NamedTuple):
    """BM25's two numbers; these are Anserini's."""

    k1: float = 0.9
    b: float = 0.4


class _Block(NamedTuple):
    """Postings of some documents, by term and then by document."""

    term: Array
    document: Array
    times: Array


class _Vocabulary:
    """Numbers the terms as they appear; each spelling is stemmed once."""

    def __init__(self) -> None:
        self._stems, self._spellings = Stems(), {}  # type: tuple[Stems, dict[str, int]]
        self.terms: dict[str, int] = {}

    def ids(self, text: str) -> list[int]:
        """Return the terms of a text as numbers."""
        known = self._spellings
        return [i for w in words(text) if (i := known[w] if w in known else self._learn(w)) >= 0]

    def _learn(self, word: str) -> int:
        term = self._stems.term(word)
        number = -1 if term is None else self.terms.setdefault(term, len(self.terms))
        self._spellings[word] = number
        return number


def build(documents: Iterable[Document], folder: Path, parameters: Parameters) -> dict[str, Any]:
    """Write an index of the documents into an empty folder; return what meta.json says. Raises DataError when there is no document."""
    scratch = folder / "blocks"
    scratch.mkdir()
    vocabulary, lengths = _Vocabulary(), array("l")
    with Writer(folder / "documents") as store:
        blocks = _first_pass(documents, store, vocabulary, lengths, scratch)
    if not lengths:
        raise DataError("there is no document to search in")
    spelled = [term.encode() for term in vocabulary.terms]
    order = sorted(range(len(spelled)), key=spelled.__getitem__)
    with Writer(folder / "terms") as texts:
        for i in order:
            texts.append(spelled[i])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    postings = _second_pass(blocks, folder, rank, np.array(lengths, np.int64), parameters)
    for block in blocks:
        block.unlink()
    scratch.rmdir()
    meta = {"documents": len(lengths), "terms": len(order), "postings": postings, "mean_length": sum(lengths) / len(lengths), **parameters._asdict()}
    meta["sizes"] = {f.name: f.stat().st_size for f in sorted(folder.iterdir())}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
    return meta


def _first_pass(documents: Iterable[Document], store: Writer, vocabulary: _Vocabulary, lengths: array[int], scratch: Path) -> list[Path]:
    blocks: list[Path] = []
    ids, start = array("q"), 0

    def flush() -> None:
        nonlocal ids, start
        file = scratch / f"{len(blocks)}.npy"
        np.save(file, np.stack(_count(np.array(ids, np.int64), np.array(lengths[start:], np.int64), start)))
        blocks.append(file)
        ids, start = array("q"), len(lengths)

    for document in documents:
        store.append(orjson.dumps(document))
        found = vocabulary.ids(document.contents)
        ids.extend(found)
        lengths.append(len(found))
        if len(lengths) - start >= _BLOCK:
            flush()
    if len(lengths) > start:
        flush()
    return blocks


def _count(ids: Array, lengths: Array, start: int) -> _Block:
    owner = np.repeat(np.arange(len(lengths)), lengths)
    key, count = np.unique(ids * len(lengths) + owner, return_counts=True)
    return _Block((key // len(lengths)).astype(np.int32), (key % len(lengths) + start).astype(np.int32), count.astype(np.int32))


def _second_pass(blocks: list[Path], folder: Path, rank: Array, lengths: Array, parameters: Parameters) -> int:
    frequency = np.zeros(len(rank), np.int64)  # by sorted term
    for file in blocks:
        frequency += np.bincount(rank[np.load(file, mmap_mode="r")[0]], minlength=len(rank))
    starts = np.concatenate([[0], np.cumsum(frequency)])
    idf = np.log(1 + (len(lengths) - frequency + 0.5) / (frequency + 0.5))
    norm = parameters.k1 * (1 - parameters.b + parameters.b * lengths / max(lengths.mean(), 1e-9))
    np.save(folder / "starts.npy", starts)
    total = int(starts[-1])
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.dtype(np.int32), (total,))  # type: ignore[no-untyped-call]
    weights = np.lib.format.open_memmap(folder / "weights.npy", "w+", np.dtype(np.float32), (total,))  # type: ignore[no-untyped-call]
    heads = starts[:-1].copy()
    for file in blocks:
        block = _Block(*np.load(file))
        if not len(block.term):
            continue
        term = rank[block.term]
        first = np.flatnonzero(np.diff(term, prepend=-1))  # where each term's run begins
        run = np.diff(first, append=len(term))
        place = np.repeat(heads[term[first]] - first, run) + np.arange(len(term))
        heads[term[first]] += run
        rows[place] = block.document
        weights[place] = idf[term] * block.times / (block.times + norm[block.document])
    peaks = np.maximum.reduceat(weights, starts[:-1]) if total else np.zeros(0, np.float32)  # every term is in some document
    np.save(folder / "peaks.npy", peaks)
    rows.flush()
    weights.flush()
    return total
