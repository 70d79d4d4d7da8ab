"""The index: lengths and scores by hand, the formula as a plain loop, the real shop's searches, damage, threads, and any text."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import random
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym.progress
from agentgym import lucene
from agentgym.envs.webshop import index as indexes
from agentgym.envs.webshop.index import Index, build
from agentgym.envs.webshop.postings import FILES, length_bytes, length_kept
from agentgym.envs.webshop.products import read
from agentgym.errors import DataError

FOUR = [("A3", "Blue shirts for men"), ("A1", "red, red dress!"), ("A2", "of the"), ("A0", "Red cotton shirt")]


def made(folder: Path, texts: list[tuple[str, str]], **options: int) -> Index:
    """Build an index in a new folder below `folder`, and open it."""
    new = folder / str(len(list(folder.iterdir())))
    new.mkdir()
    build(texts, new, progress=False, **options)
    return Index(new)


def test_lengths_by_hand() -> None:
    # Exact below 40. Above, 24 is taken off, four bits are kept, 24 is added: 100 → 76 = 0b1001100 → 0b1001000 = 72 → 96.
    # Its byte: 24, and 8 · (3 zeros + 1), and 0b001, the bits behind the first.
    lengths = [0, 1, 23, 24, 39, 40, 41, 42, 54, 55, 56, 59, 60, 100, 1000, 2**31 - 1]
    kept = [0, 1, 23, 24, 39, 40, 40, 42, 54, 54, 56, 56, 60, 96, 984, 15 * 2**27 + 24]
    assert [length_kept(b) for b in length_bytes(np.array(lengths))] == kept
    assert [length_kept(b) for b in range(40)] == list(range(40))
    assert length_bytes(np.array(lengths)).tolist()[-3:] == [24 + 8 * 4 + 0b001, 24 + 8 * 7 + 0b111, 255]


def test_scores_by_hand(tmp_path: Path) -> None:
    # Three documents with terms, 3 terms each, so each adds idf · tf / (tf + 0.9). `red` and `shirt` are in 2: idf = ln(1 + 1.5/2.5) = 0.4700036.
    # A1: red twice, 0.4700036 · 2 / 2.9 = 0.3241404. A0: red and shirt, 2 · 0.4700036 / 1.9 = 0.4947407. A3: shirt, 0.2473703.
    index = made(tmp_path, FOUR)
    assert len(index) == 4
    assert [(row, round(score, 6)) for row, score in index.search("red shirts")] == [(3, 0.494741), (1, 0.32414), (0, 0.24737)]
    # A term that is named twice counts twice: A1 0.6482808, A0 3 · 0.2473703 = 0.7421110
    assert [(row, round(score, 6)) for row, score in index.search("Red SHIRT, red?")] == [(3, 0.742111), (1, 0.648281), (0, 0.24737)]
    # `cotton` is in one: idf = ln(1 + 2.5/1.5) = 0.980829, / 1.9 = 0.516226
    assert [(row, round(score, 6)) for row, score in index.search("cotton's")] == [(3, 0.516226)]
    assert [index.search(q) for q in ("", "  ", "the of", "zebra", "re reds0")] == [[]] * 5


def test_equal_scores_come_by_id_and_lengths_are_kept_in_a_byte(tmp_path: Path) -> None:
    texts = [
        (f"{name}{n}", "shirt " + " ".join(f"w{i}" for i in range(n - 1))) for name, n in (("C", 41), ("D", 42), ("B", 40), ("A", 43), ("E", 39))
    ]
    index = made(tmp_path, texts)
    found = index.search("shirt")
    assert [texts[row][0] for row, _ in found] == ["E39", "B40", "C41", "A43", "D42"]  # 41 is kept as 40, 43 as 42
    assert len({score for _, score in found}) == 3
    assert [row for row, _ in index.search("shirt", 2)] == [4, 2] and index.search("shirt", 3) == found[:3]
    with pytest.raises(ValueError, match="k is 0; expected at least 1"):
        index.search("shirt", 0)


def plain(texts: list[tuple[str, str]], query: str, k: int) -> list[tuple[int, float]]:
    """Return (row, score) as Lucene's BM25Similarity computes it, document by document."""
    one, k1, b = np.float32(1), np.float32(0.9), np.float32(0.4)
    bags = [lucene.terms(text) for _, text in texts]
    filled = sum(map(bool, bags))
    mean = np.float32(sum(map(len, bags)) / max(1, filled))
    asked = list(dict.fromkeys(lucene.terms(query)))
    scores: list[float] = []
    for bag in bags:
        score = 0.0
        inverse = one / (k1 * ((one - b) + b * np.float32(length_kept(int(length_bytes(np.array(len(bag)))))) / mean)) if bag else one
        for term in asked:
            df = sum(term in other for other in bags)
            if term in bag:
                weight = np.float32(lucene.terms(query).count(term)) * np.float32(math.log(1 + (filled - df + 0.5) / (df + 0.5)))
                score += float(weight - weight / (one + np.float32(bag.count(term)) * inverse))
        scores.append(float(np.float32(score)))
    rows = sorted((row for row, score in enumerate(scores) if score > 0), key=lambda row: (-scores[row], texts[row][0]))
    return [(row, scores[row]) for row in rows[:k]]


WORDS = [f"{c}{v}{d}" for c in "bdgkl" for v in "aou" for d in "nt"]
TEXT = st.lists(st.sampled_from([*WORDS, *WORDS[:3] * 8, "the"]), max_size=60).map(" ".join)
TEXTS = st.lists(TEXT, max_size=30).flatmap(
    lambda ts: st.permutations([f"B{i:02}" for i in range(len(ts))]).map(lambda ids: list(zip(ids, ts, strict=True)))
)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(TEXT, min_size=1, max_size=4), st.integers(1, 40))
def test_the_same_as_the_plain_formula(tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], queries: list[str], k: int) -> None:
    index = made(tmp_path_factory.mktemp("plain"), texts)
    expected = [plain(texts, query, k) for query in queries]
    assert [index.search(query, k) for query in queries] == expected
    with pytest.MonkeyPatch.context() as patch:  # as if the index were large
        for name, value in (("_SMALL", 0), ("_SHORT", 1), ("_SLICE", 2), ("_SAMPLE", max(2, k))):
            patch.setattr(indexes, name, value)
        assert [Index(index.folder).search(query, k) for query in queries] == expected


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(1, 200))
def test_the_size_of_blocks_changes_nothing(tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], block: int) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    indices = [made(folder, texts), made(folder, texts, block=block)]
    files = [{f.name: f.read_bytes() for f in index.folder.iterdir()} for index in indices]
    assert files[0] == files[1] and set(files[0]) == {*FILES, "meta.json"}


def many(n: int = 20_000, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    common = ["shirt", "red", "cotton", "size", "women"]
    return [(f"B{rng.getrandbits(40):010x}", " ".join([*rng.choices(common, k=rng.randint(1, 9)), f"n{i % 701}", f"n{i % 97}"])) for i in range(n)]


def test_a_large_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = made(tmp_path, many(), block=50_000)
    queries = [
        "red",
        "red shirt cotton size women",
        "n5 n12 red",
        "n600",
        "shirt " * 20 + "n3",
        " ".join(f"n{i}" for i in range(1000)) + " cotton red",
    ]
    found = [index.search(query) for query in queries]
    monkeypatch.setattr(indexes, "_SMALL", 1 << 20)  # all documents are candidates
    assert found == [index.search(query) for query in queries]
    assert [len(hits) for hits in found] == [50, 50, 50, 28, 50, 50]
    assert all(hits == sorted(hits, key=lambda hit: -hit[1]) for hits in found)


def test_more_terms_than_lucene_takes(tmp_path: Path) -> None:
    index = made(tmp_path, [("A", "zebra"), ("B", "lion"), ("C", "tiger")])
    words = [f"w{i}" for i in range(1022)]
    assert [row for row, _ in index.search(" ".join(["lion", *words, "zebra", "tiger", "lion"]))] == [1, 0]
    assert index.search(" ".join([*words, "a", "w1", "w2", "lion", "tiger", "zebra"])) == index.search("lion tiger")


@pytest.mark.parametrize("texts", [[], [("A", "the of"), ("B", "")]], ids=["no documents", "no terms"])
def test_nothing_to_find(tmp_path: Path, texts: list[tuple[str, str]]) -> None:
    index = made(tmp_path, texts)
    assert len(index) == len(texts) and index.search("red the") == []


def test_an_id_is_there_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the document id 'A1' is there twice, at 1 and 4"):
        build([*FOUR, ("A1", "again")], tmp_path)


@pytest.mark.parametrize("file", [*FILES, "meta.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "longer"])
def test_a_damaged_index_is_refused(tmp_path: Path, file: str, damage: str) -> None:
    folder = made(tmp_path, FOUR).folder
    content = (folder / file).read_bytes()
    assert content and Index(folder)
    if damage == "missing":
        (folder / file).unlink()
    else:
        (folder / file).write_bytes({"empty": b"", "half": content[: len(content) // 2], "longer": content + b"]"}[damage])
    with pytest.raises((ValueError, OSError), match=file if file != "meta.json" or damage == "missing" else None):
        Index(folder)


@pytest.mark.parametrize("meta", ["{}", "[]", '{"format": 0}', '{"format": 1}', '{"format": 1, "files": {}}'])
def test_another_format_is_refused(tmp_path: Path, meta: str) -> None:
    folder = made(tmp_path, FOUR).folder
    (folder / "meta.json").write_text(meta)
    with pytest.raises(ValueError, match=r"meta\.json describes no index of format 1"):
        Index(folder)


def test_a_folder_can_be_built_again(tmp_path: Path) -> None:
    first = made(tmp_path, FOUR)
    build(FOUR[:2], first.folder, progress=False)
    assert [row for row, _ in Index(first.folder).search("red shirt")] == [1, 0]


def test_pickles_by_path_and_serves_threads(tmp_path: Path) -> None:
    index = made(tmp_path, many(3000))
    queries = [f"n{i} {word} red" for i in range(60) for word in ("shirt", "cotton women")]
    expected = [index.search(query) for query in queries]
    assert len(pickle.dumps(index)) < 300
    fresh: Index = pickle.loads(pickle.dumps(index))
    got: list[object] = [None] * 4

    def run(i: int) -> None:
        got[i] = [fresh.search(query) for query in queries]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [expected] * 4
    assert 1 <= len(fresh._free) <= 4 and not any(scores.any() for scores in fresh._free)


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = made(tmp_path, many(2000))
    expected = [index.search(f"n{i} red unheard{i}") for i in range(200)]
    monkeypatch.setattr(indexes, "_KEPT", 1000)
    index = Index(index.folder)
    for i in range(200):
        assert index.search(f"n{i} red unheard{i}") == expected[i]
        assert index._kept <= 1000 + 3 * (24 + 2000) and len(index._terms) <= 60


def test_a_long_build_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(agentgym.progress, "_QUIET_S", 0.0)
    build(many(3000), tmp_path, total=3000)
    said = capsys.readouterr().err
    assert all(re.search(rf"{what}: \d+ %, about \d+ s left", said) for what in ("reading products", "sorting the index")), said
    build(many(3000), tmp_path, total=3000, progress=False)
    assert not capsys.readouterr().err


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60), st.integers(1, 5))
def test_any_text_is_a_document_and_a_query(tmp_path_factory: pytest.TempPathFactory, text: str, query: str, k: int) -> None:
    index = made(tmp_path_factory.mktemp("any"), [("A", text), ("B", "red"), ("C", text + " red")])
    assert len(index.search(query, k)) <= k
    assert {row for row, _ in index.search(text)} >= ({0, 2} if lucene.terms(text) else set())


def test_the_searches_of_the_real_shop(webshop_data: Path, tmp_path: Path) -> None:
    """Of the 200 recorded searches every product is at its place; scores agree to the four decimals that were recorded."""
    products = list(read(webshop_data, 1000, progress=False))
    index = made(tmp_path, [(product.asin, product.text) for product in products])
    with gzip.open(webshop_data / "transcripts" / "search_a.jsonl.gz", "rt", encoding="utf-8") as f:
        recorded = [json.loads(line) for line in f]
    assert len(products) == 1000 and len(recorded) == 200
    for row in recorded:
        found = index.search(row["query"], 50)
        assert [products[i].asin for i, _ in found] == row["asins"], row["query"]
        assert [score for _, score in found] == pytest.approx(row["scores"], abs=1e-4)
