"""Build the shop's index in bounded memory: blocks of postings are sorted and go to disk, and are merged there, some terms at a time.

What is held meanwhile: about 80 bytes for each word of a block, 150 for each term of the vocabulary, 100 for each document, and the stems of up to
a million words that `lucene` remembers.
"""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from agentgym import lucene
from agentgym.errors import DataError
from agentgym.progress import shown

FORMAT = 1  # raise it when the files or the analysis of text change
FILES = (
    "order",  # number of a document → its row; numbered by falling id, so that of equal scores the greatest number comes first
    "starts",  # term → its first posting, and the end
    "numbers",  # posting → number of its document, ascending within a term
    "codes",  # posting → place in `factors`: there are few pairs of tf and length, as the length is one byte
    "factors",  # tf / (k1 (1 − b + b |d|′ / avgdl)), float32
    "words",  # all terms, sorted, as UTF-8, one after the other
    "ends",  # where each of them starts, and the end
    "ids",  # which term each of them is
)
_K1, _B = np.float32(0.9), np.float32(0.4)  # Anserini's
_MOST = (1 << 24) - 1  # a greater tf counts as this, which float32 holds exactly
Array = np.ndarray[Any, Any]


def build(texts: Iterable[tuple[str, str]], folder: Path, *, total: int | None = None, progress: bool = True, block: int = 1 << 20) -> None:
    """Write the index of (document id, text) pairs into a folder that is there. They are read once, and not held.

    total     how many there are, for the progress bar
    progress  say on stderr how far it is
    block     words that are held in memory at once
    Raises DataError where two documents have one id.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="blocks.") as temporary:
        blocks = _Blocks(Path(temporary), block)
        with shown("reading products", total or 0, progress and total is not None) as advance:
            for count, (docid, text) in enumerate(texts, start=1):
                blocks.add(docid, text)
                if count % 1000 == 0:
                    advance(1000)
        blocks.flush()
        _Writer(folder).write(blocks, progress)


def length_kept(byte: int) -> int:
    """Return the length that Lucene's byte stands for: exact below 40, then four significant bits (of what is above 24), cut off."""
    if byte < 24:
        return byte
    shift, bits = (byte - 24) // 8 - 1, (byte - 24) % 8
    return 24 + (bits if shift < 0 else (bits | 8) << shift)


LENGTHS = np.array([length_kept(byte) for byte in range(256)])


def length_bytes(lengths: Array) -> Array:
    """Return the byte that Lucene keeps of each length."""
    return np.searchsorted(LENGTHS, lengths, side="right") - 1


class _Vocabulary(dict[str, int]):
    """Terms, numbered as they come."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class _Blocks:
    """Documents as they come, and blocks of postings on disk: (term, row, tf << 8 | length byte), sorted."""

    def __init__(self, folder: Path, block: int) -> None:
        self.docids: list[str] = []
        self.vocabulary = _Vocabulary()
        self.words = self.filled = 0  # words in all, documents that have one
        self.df = np.zeros(0, np.int64)
        self.pairs = np.zeros(0, np.uint32)  # those that occur
        self._folder, self._block = folder, block
        self._terms, self._lengths = array("i"), array("i")
        self._files: list[Path] = []

    def add(self, docid: str, text: str) -> None:
        before = len(self._terms)
        self._terms.extend(map(self.vocabulary.__getitem__, lucene.terms(text)))
        self._lengths.append(len(self._terms) - before)
        self.docids.append(docid)
        if len(self._terms) >= self._block:
            self.flush()

    def flush(self) -> None:
        """Write what has come since the last time."""
        lengths, first = np.array(self._lengths), len(self.docids) - len(self._lengths)
        keys = np.array(self._terms).astype(np.int64) << 32
        keys |= np.repeat(np.arange(len(lengths)), lengths)
        keys.sort()
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        tf = np.diff(starts, append=len(keys))
        terms, rows = keys[starts] >> 32, keys[starts] & 0xFFFFFFFF
        pairs = (np.minimum(tf, _MOST) << 8) | length_bytes(lengths)[rows]
        self.pairs = np.union1d(self.pairs, pairs.astype(np.uint32))
        df = np.bincount(terms, minlength=len(self.vocabulary))
        df[: len(self.df)] += self.df
        self.df = df
        self.words += len(keys)
        self.filled += int(np.count_nonzero(lengths))
        file = self._folder / f"{len(self._files)}.npy"
        np.save(file, np.stack([terms, rows + first, pairs]).astype(np.uint32))
        self._files.append(file)
        self._terms, self._lengths = array("i"), array("i")

    def merged(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (terms, rows, pairs) of all postings, a range of terms at a time, each range of about a block."""
        starts, first = _sums(self.df), 0
        while first < len(self.df):
            end = max(first + 1, int(np.searchsorted(starts, starts[first] + self._block, side="right")) - 1)
            terms, rows, pairs = np.concatenate([_between(file, first, end) for file in self._files], axis=1)
            yield terms, rows, pairs
            first = end


def _between(file: Path, first: int, end: int) -> Array:
    """Return a block's postings of the terms from `first` to below `end`. The file is mapped only meanwhile: what is mapped counts as memory."""
    postings = np.load(file, mmap_mode="r")
    return np.array(postings[:, slice(*np.searchsorted(postings[0], [first, end]))])


class _Writer:
    """Writes the files of an index, `meta.json` last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[str, int]] = {}

    def write(self, blocks: _Blocks, progress: bool) -> None:
        order, number = _numbered(blocks.docids)
        words = sorted(blocks.vocabulary)
        spelt = [word.encode() for word in words]
        self._add("order", "<i4", order)
        self._add("starts", "<i8", _sums(blocks.df))
        self._add("factors", "<f4", _factors(blocks))
        self._add("words", "|u1", np.frombuffer(b"".join(spelt), np.uint8))
        self._add("ends", "<i8", _sums([len(word) for word in spelt]))
        self._add("ids", "<i4", np.array([blocks.vocabulary[word] for word in words], np.int64))
        self._postings(blocks, number, progress)
        meta = {"format": FORMAT, "filled": blocks.filled, "files": self._files}
        (self._folder / "meta.json").write_text(json.dumps(meta), "utf-8")

    def _postings(self, blocks: _Blocks, number: Array, progress: bool) -> None:
        kind = "<u2" if len(blocks.pairs) <= 1 << 16 else "<u4"
        self._add("numbers", "<i4", number[:0])
        self._add("codes", kind, number[:0])
        with shown("sorting the index", int(blocks.df.sum()), progress) as advance:
            for terms, rows, pairs in blocks.merged():
                numbers = number[rows]
                place = np.argsort((terms.astype(np.int64) << 32) | numbers)
                self._add("numbers", "<i4", numbers[place])
                self._add("codes", kind, np.searchsorted(blocks.pairs, pairs)[place])
                advance(len(terms))

    def _add(self, name: str, kind: str, values: Array) -> None:
        """Append values to a file."""
        before = self._files[name][1] if name in self._files else 0
        with open(self._folder / name, "ab" if name in self._files else "wb") as f:
            values.astype(kind).tofile(f)
        self._files[name] = kind, before + len(values)


def _numbered(docids: list[str]) -> tuple[Array, Array]:
    """Return the rows of all documents by falling id, and the place of each row in it."""
    rows = sorted(range(len(docids)), key=docids.__getitem__, reverse=True)
    for a, b in pairwise(rows):
        if docids[a] == docids[b]:
            raise DataError(f"the document id {docids[a]!r} is there twice, at {a} and {b} (counted from 0); expected each once")
    order, number = np.array(rows, np.int64), np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows))
    return order, number


def _factors(blocks: _Blocks) -> Array:
    """Return tf / (k1 (1 − b + b |d|′ / avgdl)) of each pair, rounded where Lucene rounds."""
    mean = np.float32(blocks.words / max(1, blocks.filled))
    inverse = np.float32(1) / (_K1 * ((np.float32(1) - _B) + _B * LENGTHS.astype(np.float32) / max(mean, np.float32(1))))
    return (blocks.pairs >> 8).astype(np.float32) * inverse[blocks.pairs & 255]


def _sums(sizes: Any) -> Array:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
