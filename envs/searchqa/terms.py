"""From text to index terms as Lucene's English analyser does it: words, `'s` stripped, lower case, no stop words, Porter stems.

Words follow the rules of Lucene's standard tokeniser: "o'neill", "u.s" and "3,610" are one word each, a Chinese character is a word
of its own, a run of letters is cut at 255. (bm25s' own pattern drops every word of a single letter or digit.)
"""

from __future__ import annotations

import re
from typing import Any

from agentgym.errors import ConfigError

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with".split()
)

_IDEOGRAPH = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER, _PART = rf"[^\W\d_{_IDEOGRAPH}]", rf"[^\W{_IDEOGRAPH}]{{1,255}}"
# A word goes on over a joiner only between two letters (o'neill, u.s) or between two digits (3,610); a closing 's is passed over.
_JOINED = rf"(?:(?<={_LETTER})(?:['’](?!s\b)|[.:·])(?={_LETTER})|(?<=\d)[.,;](?=\d))"
_WORD = re.compile(rf"([{_IDEOGRAPH}]|{_PART}(?:{_JOINED}{_PART}){{0,9}})(?:(?<={_LETTER})['’]s\b)?")


def words(text: str) -> list[str]:
    """Return the words of a text, in order and in lower case, stop words included."""
    return _WORD.findall(text.lower())


def tokenizer() -> Any:
    """Return bm25s' tokenizer over these words. It holds a vocabulary and a stemmer's buffer: threads must not share it."""
    try:
        from bm25s.tokenization import Tokenizer
        from Stemmer import Stemmer
    except ImportError as e:
        raise ConfigError(f"BM25 search needs further packages ({e}): pip install bm25s PyStemmer") from e
    stem = Stemmer("porter", 0).stemWord  # without a cache of its own: the tokenizer keeps one
    # PyStemmer makes "u" of "us"; Lucene and Porter's own program leave words of two letters alone.
    return Tokenizer(lower=True, splitter=_WORD.findall, stopwords=sorted(STOP_WORDS), stemmer=lambda word: stem(word) if len(word) > 2 else word)
