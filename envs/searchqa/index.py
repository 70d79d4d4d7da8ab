"""BM25 over a corpus: built once, kept on disk, mapped into memory, shared by threads and processes.

index = Index.open("wiki.jsonl")
[[hit, *_]] = index.search(["who wrote Faust"], topk=3)      # hit.document.title, hit.document.text, hit.score
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import orjson

from agentgym.cache import atomic_folder, cache_dir
from agentgym.errors import ConfigError, DataError, did_you_mean

from .build import Parameters, build
from .corpus import Document, Hit, digest, read, shown
from .postings import Counted, Postings, Span
from .store import Texts
from .terms import Stems, words

__all__ = ["Document", "Hit", "Index", "Retriever", "open_retriever"]

_FORMAT = "bm25-2"  # part of the key: raise it when the files or the analysis of text change
_WORDS_KEPT = 1 << 18


class Retriever(Protocol):
    """What answers queries: `Index` (BM25), `dense.Dense`, or your own."""

    def __len__(self) -> int:
        """Return the number of documents."""
        ...

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query at most `topk` documents, the best first. May be called by several threads at once."""
        ...


class Index:
    """A BM25 index in a folder. Pickles as its path; may be used by several threads."""

    def __init__(self, folder: Path | str) -> None:
        """Map the index that lies in `folder`. Raises ValueError or OSError when it is not whole."""
        self.folder = Path(folder)
        self.meta: dict[str, Any] = json.loads((self.folder / "meta.json").read_bytes())
        for name, size in self.meta["sizes"].items():
            if (self.folder / name).stat().st_size != size:
                raise ValueError(f"{name} has not the {size} bytes that it had")
        self.documents = Texts(self.folder / "documents")
        self._terms = Texts(self.folder / "terms")
        self._postings = Postings(self.folder, len(self.documents))
        self._stems = Stems()
        self._spans: dict[str, Span | None] = {}

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

        return cls._kept(str(path), sha, documents(), cache, progress, Parameters(k1, b))

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

        return cls._kept(name, sha.hexdigest(), each(), cache, progress, Parameters(k1, b))

    @classmethod
    def _kept(cls, name: str, sha: str, documents: Iterable[Document], cache: Path | None, progress: bool, parameters: Parameters) -> Index:
        key = hashlib.sha256(f"{sha} {_FORMAT} {parameters}".encode()).hexdigest()[:32]
        folder = (cache or cache_dir() / "searchqa") / key
        if folder.exists():
            try:
                return cls(folder)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
                warnings.warn(f"the index {folder} cannot be used ({e}); building it again", stacklevel=3)
                shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        try:
            with atomic_folder(folder) as new:
                meta = build(documents, new, parameters)
        except OSError as e:
            raise DataError(f"cannot write the index of {name} to {folder.parent}: {e}; set AGENTGYM_CACHE to a folder with space") from e
        except DataError as e:
            raise DataError(f"{e} (corpus {name})" if name not in str(e) else str(e)) from e
        if progress and (seconds := time.monotonic() - start) > 2:
            size = sum(meta["sizes"].values()) / 1e6
            print(f"{name}: {meta['documents']:,} documents indexed in {seconds:.0f} s, {size:,.0f} MB in {folder}", file=sys.stderr, flush=True)
        return cls(folder)

    def __reduce__(self) -> tuple[type[Index], tuple[Path]]:
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return len(self.documents)

    def document(self, row: int) -> Document:
        """Return one document by its place in the corpus."""
        return Document(**orjson.loads(self.documents[row]))

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` documents of the highest scores, which are > 0; equal scores in the order of the corpus."""
        if isinstance(queries, str):
            raise TypeError(f"search takes a list of queries; got the text {queries[:80]!r}: put it into a list")
        if topk < 1:
            raise ValueError(f"topk is {topk}; expected at least 1")
        return [[Hit(self.document(row), score) for row, score in self.rank(query, topk)] for query in queries]

    def rank(self, query: str, topk: int) -> list[tuple[int, float]]:
        """Return (place in the corpus, score) of the best documents of one query."""
        times: dict[Span, int] = {}
        for word in words(query):
            found = self._spans[word] if word in self._spans else self._look_up(word)
            if found is not None:
                times[found] = times.get(found, 0) + 1
        if not times:
            return []
        rows, scores = self._postings.best([Counted(span, n) for span, n in times.items()], topk)
        return list(zip(rows.tolist(), scores.tolist(), strict=True))

    def _look_up(self, word: str) -> Span | None:
        term = self._stems.term(word)
        found = None
        if term is not None:
            key = term.encode()
            i = bisect_left(self._terms, key)
            if i < len(self._terms) and self._terms[i] == key:
                found = self._postings.span(i)
        if len(self._spans) < _WORDS_KEPT and len(word) < 64:
            self._spans[word] = found
        return found


def open_retriever(corpus: str, kind: str = "bm25", *, model: str | None = None, cache: Path | None = None) -> Retriever:
    """Return the index of a corpus, built now where there is none. Raises DataError or ConfigError that says what is missing."""
    if kind == "bm25":
        if model is not None:
            raise ConfigError(f"model={model!r} is for dense retrieval; BM25 has no model: drop it, or take kind 'dense'")
        return Index.open(corpus, cache=cache)
    if kind == "dense":
        from .dense import Dense

        return Dense.open(corpus, model=model, cache=cache)
    raise ConfigError(f"unknown kind of search {kind!r}.{did_you_mean(kind, ('bm25', 'dense'))} Known: bm25, dense")
