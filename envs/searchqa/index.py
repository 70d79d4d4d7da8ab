"""BM25 over a corpus: built once, kept on disk, mapped into memory, shared by threads and processes.

index = Index.open("wiki.jsonl")
[[hit, *_]] = index.search(["who wrote Faust"], topk=3)      # hit.document.title, hit.document.text, hit.score
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson

from agentgym.cache import built_once, cache_dir
from agentgym.errors import ConfigError, DataError, did_you_mean
from agentgym.progress import shown

from . import factbook
from .corpus import Document, Hit, digest, read
from .store import Stored, written
from .terms import tokenizer

__all__ = ["Document", "Hit", "Index", "Retriever", "open_retriever"]

FACTBOOK = "factbook"
_FORMAT = "bm25s-2"  # part of the key: raise it when the files or the analysis of text change
_WORDS_KEPT = 1 << 18  # words of queries whose terms are remembered
Array = np.ndarray[Any, Any]


class Retriever(Protocol):
    """What answers queries: `Index` (BM25), `dense.Dense`, or your own."""

    def __len__(self) -> int:
        """Return the number of documents."""
        ...

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query at most `topk` documents, the best first. May be called by several threads at once."""
        ...


class Index:
    """A BM25 index in a folder, by bm25s (Lucene's formula). Pickles as its path; may be used by several threads.

    w(t, d) = idf(t) · tf / (tf + k1 (1 − b + b |d| / avgdl)),  idf(t) = ln(1 + (N − df + ½) / (df + ½));  a score is the sum over the query's terms
    """

    def __init__(self, folder: Path | str) -> None:
        """Map the index that lies in `folder`. Raises ValueError or OSError when it is not whole."""
        self._words = tokenizer()  # says which packages are missing
        import bm25s

        self.folder = Path(folder)
        self.documents = Stored(self.folder / "documents.arrow")
        self._bm25 = bm25s.BM25.load(self.folder, mmap=True, show_progress=False)
        # The same mapped arrays, without the subclass `memmap`, which makes every slice slow.
        self._bm25.scores = {k: np.asarray(v) if isinstance(v, np.ndarray) else v for k, v in self._bm25.scores.items()}
        if self._bm25.scores["num_docs"] != len(self.documents):
            raise ValueError(f"{len(self.documents)} documents where {self._bm25.scores['num_docs']} were indexed")
        self._words.stem_to_sid = self._bm25.vocab_dict
        self._lock = threading.Lock()

    @classmethod
    def open(cls, corpus: Path | str, *, cache: Path | None = None, progress: bool = True, k1: float = 0.9, b: float = 0.4) -> Index:
        """Return the index of a corpus file, built now if that was never done for these bytes and parameters.

        cache     folder for indexes; else `searchqa` in agentgym's cache
        progress  say on stderr how far a long build is
        k1, b     BM25's parameters; the defaults are Anserini's
        Raises DataError for a file that is missing, or a row that is no document.
        """
        path = Path(corpus).expanduser()
        sha, before = digest(path, progress), path.stat()

        def documents() -> Iterable[Document]:
            yield from read(path, progress)
            after = path.stat()
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise DataError(f"the corpus {path} was changed while it was read; try again when it is complete")

        return cls._kept(str(path), sha, documents(), cache, progress, k1, b)

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Document],
        *,
        name: str = "documents",
        cache: Path | None = None,
        progress: bool = True,
        k1: float = 0.9,
        b: float = 0.4,
    ) -> Index:
        """Return the index of a generated corpus, kept under a hash of its contents. `name` is what messages call it."""
        sha = hashlib.sha256()
        for d in documents:
            row = orjson.dumps(d)
            sha.update(b"%d\n" % len(row) + row)

        def each() -> Iterable[Document]:
            with shown(f"{name}: indexing (the first time only)", len(documents), progress) as advance:
                for number, document in enumerate(documents, start=1):
                    yield document
                    if number % 1000 == 0:
                        advance(1000)

        return cls._kept(name, sha.hexdigest(), each(), cache, progress, k1, b)

    @classmethod
    def _kept(cls, name: str, sha: str, documents: Iterable[Document], cache: Path | None, progress: bool, k1: float, b: float) -> Index:
        key = hashlib.sha256(f"{sha} {_FORMAT} {k1} {b}".encode()).hexdigest()[:32]
        folder = (cache or cache_dir() / "searchqa") / key
        start = time.monotonic()
        damaged = (OSError, ValueError, KeyError, TypeError, EOFError)
        index, new = built_once(folder, name, cls, lambda new: _build(name, documents, new, progress, k1, b), damaged=damaged)
        if new and progress and (seconds := time.monotonic() - start) > 2:
            size = sum(f.stat().st_size for f in folder.iterdir()) / 1e6
            print(f"{name}: {len(index):,} documents indexed in {seconds:.0f} s, {size:,.0f} MB in {folder}", file=sys.stderr, flush=True)
        return index

    def __reduce__(self) -> tuple[type[Index], tuple[Path]]:
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return len(self.documents)

    def document(self, row: int) -> Document:
        """Return one document by its place in the corpus."""
        return self.documents[row]

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` documents of the highest scores, which are > 0; equal scores in the order of the corpus."""
        if isinstance(queries, str):
            raise TypeError(f"search takes a list of queries; got the text {queries[:80]!r}: put it into a list")
        if topk < 1:
            raise ValueError(f"topk is {topk}; expected at least 1")
        with self._lock:  # the tokenizer remembers words, and its stemmer has a buffer
            if len(self._words.word_to_stem) > _WORDS_KEPT:
                self._words.word_to_stem, self._words.word_to_id = {}, {}
            asked = list(self._words.streaming_tokenize(queries, update_vocab=False, allow_empty=False))
        found = [_best(self._bm25.get_scores_from_ids(terms), topk) if terms else [] for terms in asked]
        return [[Hit(self.documents[row], score) for row, score in best] for best in found]


def _best(scores: Array, topk: int) -> list[tuple[int, float]]:
    """Return (row, score) of the highest scores. bm25s' own choice sorts all rows, and of equal ones keeps whichever it likes."""
    rows = (scores > 0).nonzero()[0]
    scores = scores[rows]
    if len(rows) > topk:
        keep = scores >= np.partition(scores, -topk)[-topk]
        rows, scores = rows[keep], scores[keep]
    order = np.argsort(-scores, kind="stable")[:topk]
    return list(zip(rows[order].tolist(), scores[order].tolist(), strict=True))


def _build(name: str, documents: Iterable[Document], folder: Path, progress: bool, k1: float, b: float) -> None:
    """Write an index into an empty folder. Raises DataError where there is nothing to search in."""
    words, corpus = tokenizer(), _Corpus(f"{name}: weighing terms", progress)
    import bm25s

    for some in written(documents, folder / "documents.arrow"):
        corpus.add(words.streaming_tokenize([d.contents for d in some], allow_empty=False))
    if not words.stem_to_sid:
        raise DataError(f"no document has a word to search for (corpus {name})")
    corpus.vocab = words.stem_to_sid
    bm25 = bm25s.BM25(method="lucene", k1=k1, b=b, csc_backend="auto")
    bm25.index(corpus, create_empty_token=False, show_progress=False)
    bm25.save(folder, show_progress=False)


class _Corpus:
    """Terms by document as bm25s reads them (`ids`, `vocab`), four bytes each; lists of lists would take twice the memory."""

    def __init__(self, what: str, progress: bool) -> None:
        self._what, self._progress = what, progress
        self._terms, self._ends = array("i"), array("q", [0])
        self.vocab: dict[str, int] = {}

    def add(self, documents: Iterable[list[int]]) -> None:
        for terms in documents:
            self._terms.extend(terms)
            self._ends.append(len(self._terms))

    @property
    def ids(self) -> _Corpus:
        return self

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[array[int]]:
        with shown(self._what, len(self), self._progress) as advance:
            for number, (start, end) in enumerate(pairwise(self._ends)):
                yield self._terms[start:end]
                if number % 1000 == 999:
                    advance(1000)


def open_retriever(
    corpus: str, kind: str = "bm25", *, model: str | None = None, cache: Path | None = None, words: int | None = None, asked: bool = False
) -> Retriever:
    """Return the index of a corpus file, or of "factbook", the embedded corpus; built now where there is none.

    words, asked  which documents of the embedded corpus; see factbook.documents

    Raises DataError or ConfigError that says what is missing.
    """
    if kind == "bm25":
        if model is not None:
            raise ConfigError(f"model={model!r} is for dense retrieval; BM25 has no model: drop it, or take kind 'dense'")
        if corpus == FACTBOOK:
            return Index.from_documents(factbook.documents(words=words, asked=asked), name=corpus, cache=cache)
        return Index.open(corpus, cache=cache)
    if kind == "dense":
        if corpus == FACTBOOK:
            raise ConfigError("the embedded corpus has a BM25 index; write it to a file for a dense one")
        from .dense import Dense

        return Dense.open(corpus, model=model, cache=cache)
    raise ConfigError(f"unknown kind of search {kind!r}.{did_you_mean(kind, ('bm25', 'dense'))} Known: bm25, dense")
