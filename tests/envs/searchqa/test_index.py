"""The index: scores worked by hand, formats, the cache, what is mapped and remembered, and properties over any text."""

from __future__ import annotations

import gzip
import math
import multiprocessing
import pickle
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym.progress
from agentgym.cache import cache_dir
from agentgym.envs.searchqa import index as indexes
from agentgym.envs.searchqa.index import Document, Index
from agentgym.envs.searchqa.terms import tokenizer
from agentgym.errors import ConfigError, DataError

THREE = [
    Document("a", '"Cats"\nThe cat sat on the mat'),  # terms: cat cat sat mat
    Document("b", '"Dogs"\nA dog chased the cat, and the dog\'s friend'),  # dog dog chase cat dog friend
    Document("c", '"Empty"\nof the and'),  # empti
]


def analyse(text: str) -> list[str]:
    words = tokenizer()
    [terms] = words.decode(words.tokenize([text], show_progress=False, return_as="ids", allow_empty=False))
    return list(terms)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The cat sat on the mat", ["cat", "sat", "mat"]),
        ("the dog's friend’s ponies", ["dog", "friend", "poni"]),
        ("relational conditional RATIONAL", ["relat", "condit", "ration"]),
        ("O'Neill of the U.S. has 3,610.5 m", ["o'neil", "u.", "ha", "3,610.5", "m"]),
        ("end.Start 1.e well-known a,b", ["end.start", "1", "e", "well", "known", "b"]),
        ("don't it's the dogs' x'solo", ["don't", "dog", "x'solo"]),
        ("Café ÉCOLE", ["café", "école"]),
        ("東京 is ひ", ["東", "京", "ひ"]),
        ("us is s as ", ["us", "s"]),
        ("x" * 300, ["x" * 255, "x" * 45]),
        ("'s \ud800 _ ", ["s"]),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert analyse(text) == terms


def test_score_by_hand() -> None:
    # 3 documents of 4, 6 and 1 terms, mean 11/3. `cat`: in 2 documents, idf = ln(1 + 1.5/2.5) = 0.470004.
    # a: tf 2, |d| 4: 0.470004 · 2 / (2 + 0.9 (0.6 + 0.4 · 4 · 3/11)) = 0.470004 · 2 / 2.932727 = 0.320523
    # b: tf 1, |d| 6: 0.470004 · 1 / (1 + 0.9 (0.6 + 0.4 · 6 · 3/11)) = 0.470004 / 2.129091 = 0.220753
    # `dog`: in b alone, idf = ln(1 + 2.5/1.5) = 0.980829; tf 3: 0.980829 · 3 / (3 + 1.129091) = 0.712624
    index = Index.from_documents(THREE)
    [cat, dogs, both, nothing, stop] = index.search(["CATS", "a dog's", "dogs cats", "zebra", "the of"], 3)
    assert [(h.document.id, round(h.score, 5)) for h in cat] == [("a", 0.32052), ("b", 0.22075)]
    assert [(h.document.id, round(h.score, 5)) for h in dogs] == [("b", 0.71262)]
    assert [(h.document.id, round(h.score, 5)) for h in both] == [("b", 0.93338), ("a", 0.32052)]
    assert nothing == stop == []
    [[twice, *_]] = index.search(["cat cat"], 1)
    assert twice.score == pytest.approx(2 * 0.320523, abs=2e-6)  # a word that is named twice counts twice
    assert math.log(1 + 1.5 / 2.5) == pytest.approx(0.470004, abs=1e-6)


def test_documents_come_back_as_they_were() -> None:
    index = Index.from_documents(THREE)
    [[document, score]] = [tuple(h) for h in index.search(["sat"], 3)[0]]
    assert document == THREE[0] and score > 0
    assert (document.title, document.text) == ('"Cats"', "The cat sat on the mat")
    assert len(index) == 3 and Document("x", "only a line").text == ""


def test_equal_scores_in_corpus_order() -> None:
    index = Index.from_documents([Document(str(i), f"T\n{'other' if i % 3 else 'same word'}") for i in range(100)])
    assert [h.document.id for h in index.search(["word"], 5)[0]] == ["0", "3", "6", "9", "12"]
    assert [h.document.id for h in index.search(["same other word"], 40)[0]][:34] == [str(i) for i in range(0, 100, 3)]


def plain_bm25(bags: list[list[str]], query: str) -> list[float]:
    """The formula, document by document."""
    n, mean, asked = len(bags), sum(map(len, bags)) / len(bags), analyse(query)
    df = {t: sum(t in b for b in bags) for t in asked}
    idf = {t: math.log(1 + (n - df[t] + 0.5) / (df[t] + 0.5)) for t in asked}
    return [sum(idf[t] * b.count(t) / (b.count(t) + 0.9 * (0.6 + 0.4 * len(b) / mean)) for t in asked if t in b) for b in bags]


@pytest.mark.parametrize("topk", [1, 3, 50, 5000])
def test_the_same_as_the_plain_formula(topk: int) -> None:
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(300)]
    chance = 1 / np.arange(1, 301)
    documents = [Document(str(i), "T\n" + " ".join(rng.choice(vocabulary, 20, p=chance / chance.sum()))) for i in range(2000)]
    index, bags = Index.from_documents(documents), [analyse(d.contents) for d in documents]
    for query in (" ".join(rng.choice(vocabulary, n)) for n in (1, 2, 5, 9, 30)):
        scores = np.array(plain_bm25(bags, query))
        hits = index.search([query], topk)[0]
        assert len(hits) == min(topk, np.count_nonzero(scores))
        assert [h.score for h in hits] == pytest.approx(sorted(scores[scores > 0], reverse=True)[:topk], rel=1e-5)
        assert all(scores[int(h.document.id)] == pytest.approx(h.score, rel=1e-5) for h in hits)


def test_real_rows(searchqa_shared: Path) -> None:
    index = Index.open(searchqa_shared / "searchr1_corpus.jsonl")
    [[hit, *_]] = index.search(["Who was a lobbyist for Genentech?"], 3)
    assert (hit.document.id, hit.document.title) == ("0", '"Evan Morris"')
    assert hit.document.text.startswith("Evan Morris Evan L. Morris (January 26, 1977 – July 9, 2015)")


ROWS = [{"id": "7", "contents": "One\nfirst text"}, {"title": "Two\n2", "text": "second\ntext"}, {"_id": 9, "contents": "Three\nthird"}]


def write_parquet(path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"id": "7", "contents": "One\nfirst text"}] * 3), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("c.jsonl", lambda p: p.write_bytes(b"\xef\xbb\xbf" + b"\r\n\n".join(map(orjson.dumps, ROWS)))),
        ("c.jsonl.gz", lambda p: p.write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, ROWS))))),
        ("c.json", lambda p: p.write_bytes(orjson.dumps(ROWS))),
        ("c.parquet", write_parquet),
    ],
)
def test_formats(tmp_path: Path, name: str, write: Callable[[Path], object]) -> None:
    write(tmp_path / name)
    index = Index.open(tmp_path / name)
    found = [index.document(i) for i in range(3)]
    assert found[0] == Document("7", "One\nfirst text")
    if name != "c.parquet":
        assert found[1:] == [Document("1", "Two 2\nsecond\ntext"), Document("9", "Three\nthird")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("c.jsonl", b'{"contents":"x"}\n{"contents":', r"c\.jsonl:2 is no JSON.*expected one document a line"),
        ("c.jsonl", b'{"contents":"x"}\n\n{"content":"x"}\n', r"c\.jsonl:3 is no document.*'contents'.*\{'content': 'x'\}.*expected"),
        ("c.jsonl", b"[1]", r"c\.jsonl:1 is no document: got \[1\]"),
        ("c.jsonl", b'{"id":[1],"contents":"x"}', r"its id is \[1\]"),
        ("c.jsonl", b"\n", r"no document has a word to search for.*c\.jsonl"),
        ("c.json", b"{}", r"holds dict; expected a list"),
        ("c.json", b'[{"text": 3}]', r"c\.json, item 0 is no document"),
        ("c.txt", b"x", r"cannot tell the format.*Known: \.jsonl"),
        ("c.parquet", b"x", r"cannot be read as parquet"),
        ("c.jsonl.gz", gzip.compress(b'{"contents":"x"}\n' * 9, mtime=0)[:-9], r"cannot read .*c\.jsonl\.gz to its end"),
    ],
)
def test_damaged_corpora(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        Index.open(tmp_path / name, cache=tmp_path / "cache")
    assert not [*(tmp_path / "cache").glob("*")]


def test_a_missing_corpus(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the corpus .*none\.jsonl: No such file"):
        Index.open(tmp_path / "none.jsonl")


def test_built_once_and_again_when_the_file_changes(tmp_path: Path) -> None:
    file, cache = tmp_path / "c.jsonl", tmp_path / "cache"
    file.write_bytes(orjson.dumps({"contents": "T\nold words"}))
    first = Index.open(file, cache=cache)
    written = (first.folder / "params.index.json").stat().st_mtime_ns
    assert Index.open(file, cache=cache).folder == first.folder and (first.folder / "params.index.json").stat().st_mtime_ns == written
    file.write_bytes(orjson.dumps({"contents": "T\nnew words that are longer"}))
    second = Index.open(file, cache=cache)
    assert second.folder != first.folder and second.search(["longer"], 1)[0]
    assert Index.open(file, cache=cache, b=0.75).folder not in (first.folder, second.folder)
    assert first.search(["old"], 1)[0]


@pytest.mark.parametrize("content", [b"", b"half"])
@pytest.mark.parametrize("file", ["documents.arrow", "data.csc.index.npy", "indptr.csc.index.npy", "vocab.index.json", "params.index.json"])
def test_a_damaged_index_is_built_again(tmp_path: Path, file: str, content: bytes) -> None:
    damaged = Index.from_documents(THREE, cache=tmp_path).folder / file
    damaged.write_bytes(content)
    with pytest.warns(UserWarning, match="cannot be used .*building it again"):
        assert Index.from_documents(THREE, cache=tmp_path).search(["cat"], 1)[0][0].document.id == "a"
    assert damaged.read_bytes() != content


def test_an_index_is_mapped_and_not_read(corpus: Path) -> None:
    """Search-R1's servers copy their index into memory (60 GB for Wikipedia); here only the vocabulary is."""
    folder, before = Index.open(corpus).folder, pyarrow.total_allocated_bytes()
    index = Index(folder)
    for name in ("data", "indices", "indptr"):
        assert isinstance(index._bm25.scores[name].base, np.memmap)
    assert len(index.search(["violin"], 50)[0]) == 50 and pyarrow.total_allocated_bytes() == before


def test_queries_never_grow_the_index_and_what_is_remembered_is_bounded(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.open(corpus)
    vocabulary = dict(index._bm25.vocab_dict)
    monkeypatch.setattr(indexes, "_WORDS_KEPT", 100)
    for i in range(50):
        assert [len(hits) for hits in index.search([f"unheard{i}of{j} violins" for j in range(9)], 1)] == [1] * 9
        assert len(index._words.word_to_stem) < 120
    assert index._bm25.vocab_dict == vocabulary and index._words.stem_to_sid == vocabulary


def test_a_long_build_says_how_far_it_is(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(agentgym.progress, "_QUIET_S", 0.0)
    rows = [{"contents": f"T\nword{i}"} for i in range(3000)]
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    Index.open(tmp_path / "c.jsonl", cache=tmp_path / "cache")
    said = capsys.readouterr().err
    for what in ("hashing", r"indexing \(the first time only\)", "weighing terms"):
        assert re.search(rf"c\.jsonl: {what}: \d+ %, about \d+ s left", said), said
    Index.open(tmp_path / "c.jsonl", cache=tmp_path / "other", progress=False)
    assert not capsys.readouterr().err


def test_the_hash_of_a_corpus_is_remembered(corpus: Path) -> None:
    before = set((cache_dir() / "hashes").glob("*"))
    folder = Index.open(corpus).folder
    notes = set((cache_dir() / "hashes").glob("*")) | before
    for note in notes:
        note.write_bytes(b"{damaged")
    assert Index.open(corpus).folder == folder


def found_by(corpus: Path, cache: Path, out: multiprocessing.Queue[str]) -> None:
    out.put(Index.open(corpus, cache=cache).search(["number7x"], 1)[0][0].document.id)


def test_several_processes_build_at_once(corpus: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    processes = [context.Process(target=found_by, args=(corpus, tmp_path, out)) for _ in range(3)]
    for p in processes:
        p.start()
    assert [out.get(timeout=30) for _ in processes] == ["7"] * 3
    for p in processes:
        p.join(30)
    assert len(list(tmp_path.iterdir())) == 1


def test_pickles_by_path_and_serves_threads(corpus: Path) -> None:
    index = pickle.loads(pickle.dumps(Index.open(corpus)))
    assert len(pickle.dumps(index)) < 500
    queries = [f"number{i}x old {t}" for i in range(60) for t in ("glacier", "violin")]
    expected = index.search(queries, 5)
    fresh = pickle.loads(pickle.dumps(index))
    got: list[object] = [None] * 4

    def run(i: int) -> None:
        got[i] = fresh.search(queries, 5)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [expected] * 4


def test_arguments() -> None:
    index = Index.from_documents(THREE)
    with pytest.raises(TypeError, match="list of queries"):
        index.search("cat", 3)
    with pytest.raises(ValueError, match="topk is 0"):
        index.search(["cat"], 0)
    assert index.search([], 3) == []


def test_without_its_package_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Index.from_documents(THREE, cache=tmp_path).folder
    for name in ("bm25s", "bm25s.tokenization"):
        monkeypatch.setitem(sys.modules, name, None)
    for make in (lambda: Index(folder), lambda: Index.from_documents(THREE[:2], cache=tmp_path)):
        with pytest.raises(ConfigError, match=r"BM25 search needs further packages \(.*bm25s.*\): pip install bm25s"):
            make()


@pytest.mark.parametrize("documents", [[], [Document("0", "the of"), Document("1", "")]], ids=["none", "no words"])
def test_where_nothing_could_be_found_there_is_no_index(documents: list[Document]) -> None:
    with pytest.raises(DataError, match=r"no document has a word to search for \(corpus mine\)"):
        Index.from_documents(documents, name="mine")


def test_some_documents_may_be_without_a_word() -> None:
    index = Index.from_documents([Document("0", "the of"), Document("1", "word"), Document("2", "")])
    assert index.search(["the", "x", "word"], 3)[:2] == [[], []] and [h.document.id for h in index.search(["word"], 3)[0]] == ["1"]


ANY_TEXT = st.text(st.characters(), max_size=60)  # surrogates too


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_TEXT, max_size=6), st.integers(1, 500))
def test_any_text_is_a_query(corpus: Path, queries: list[str], topk: int) -> None:
    index = Index.open(corpus)
    found = index.search([*queries, "old violin"], topk)
    assert found == [index.search([q], topk)[0] for q in [*queries, "old violin"]]
    for hits in found:
        assert len(hits) <= topk and all(h.score > 0 for h in hits)
        assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
        assert len({h.document.id for h in hits}) == len(hits)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=5))
def test_any_text_is_a_document(tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]]) -> None:
    clean = [tuple(t.encode("utf-8", "replace").decode() for t in pair) for pair in texts]
    documents = [Document(str(i), f"{title}\n{text}") for i, (title, text) in enumerate([*clean, ("some", "word")])]
    index = Index.from_documents(documents, cache=tmp_path_factory.mktemp("any"))
    assert [index.document(i) for i in range(len(documents))] == documents
    for document in documents:
        hits = index.search([document.contents], len(documents))[0]
        assert bool(analyse(document.contents)) == (document in [h.document for h in hits])
