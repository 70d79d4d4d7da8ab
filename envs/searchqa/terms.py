"""From text to index terms as Lucene's English analyser does it: words, `'s` stripped, lower case, no stop words, Porter stems.

Words follow the Unicode rules that Lucene's standard tokeniser follows: "o'neill", "u.s" and "3,610" are one word each, a Chinese
character is a word of its own.
"""

from __future__ import annotations

import re
import threading
import unicodedata

from agentgym.errors import ConfigError

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with".split()
)

# A word goes on over a joiner only between two letters (o'neill, u.s) or between two digits (3,610).
_ASCII = re.compile(r"[a-z0-9_]+(?:(?:(?<=[a-z])['.:](?=[a-z])|(?<=[0-9])['.,;](?=[0-9]))[a-z0-9_]+)*")
_IDEOGRAPH = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = rf"[^\W{_IDEOGRAPH}]+"
_LETTER, _DIGIT = rf"[^\W\d_{_IDEOGRAPH}]", r"\d"
_ANY = re.compile(
    rf"[{_IDEOGRAPH}]|{_RUN}(?:(?:(?<={_LETTER})['’.:·](?={_LETTER})|(?<={_DIGIT})['’.,;](?={_DIGIT})){_RUN})*",
)
_POSSESSIVE = ("'s", "’s", "＇s")


def words(text: str) -> list[str]:
    """Return the words of a text, in order and in lower case, stop words included."""
    if text.isascii():
        return _ASCII.findall(text.lower())
    # Composed and decomposed accents are the same word; half a surrogate pair is no text.
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())
    return _ANY.findall(text.lower())


class Stems:
    """Word → index term. May be used by several threads."""

    def __init__(self) -> None:
        try:
            from Stemmer import Stemmer
        except ImportError as e:
            raise ConfigError("BM25 search needs the package PyStemmer: pip install PyStemmer") from e
        self._stemmer = Stemmer("porter", 0)  # its own cache of words is not wanted: callers keep words with their posting lists
        self._lock = threading.Lock()  # a stemmer holds a buffer that threads must not share

    def term(self, word: str) -> str | None:
        """Return the term of a lower-case word, None for a stop word."""
        if word.endswith(_POSSESSIVE):
            word = word[:-2]
        if not word or word in STOP_WORDS:
            return None
        if len(word) <= 2:  # as Lucene and Porter's own program: "us" is not "u"
            return word
        with self._lock:
            return self._stemmer.stemWord(word)  # type: ignore[no-any-return]
