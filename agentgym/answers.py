"""How answers are compared: the words of SQuAD (arXiv 1606.05250) and Search-R1."""

from __future__ import annotations

import re
import string
from collections import Counter

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Return `text` in lower case, without ASCII punctuation, without the words a, an, the, with single blanks.

    The order is that of SQuAD and Search-R1: "U.S." becomes "us", "the-end" becomes "theend".
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(one: str, two: str) -> float:
    """Return the F1 of the normalised words that two texts share, 2·P·R / (P + R), each word as often as it stands there; 1 for two without words."""
    a, b = Counter(normalise(one).split()), Counter(normalise(two).split())
    if not a or not b:
        return float(a == b)
    return 2 * (a & b).total() / (a.total() + b.total())
