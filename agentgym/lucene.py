"""From text to index terms as Lucene's English analyser does it: words, `'s` off, lower case, stop words out, Porter's stems.

Words are those of Lucene's standard tokeniser (Unicode's word breaks, UAX #29): "o'neill", "u.s", "a_b" and "3,610" are one word each, a Chinese
character is a word of its own, and so is an emoji or a sign like ™; a word is cut at 255 characters. The stemmer is Lucene's too, which is Porter's
own program with what he added to it later (bli → ble, logi → log); Snowball's `porter` lacks that, and makes "u" of "us".
"""

from __future__ import annotations

import re
from unicodedata import category

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with".split()
)
_LONGEST = 255  # characters of a word
_KEPT, _KEPT_LENGTH = 1 << 20, 32  # words whose terms are remembered, none longer

# Words in ASCII: joiners stand only between two letters (o'neill, u.s) or two digits (3,610).
_ASCII = re.compile(r"[a-z0-9_]++(?:[.':,;](?:(?<=[a-z][.':])(?=[a-z])|(?<=[0-9][.,;'])(?=[0-9]))[a-z0-9_]++)*+")
_MIXED = re.compile(r"(?<![^\x00-\x20])([\x21-\x7f]*+[^\x00-\x7f][^\x00-\x20]*+)")  # from space to space, and not ASCII alone


def words(text: str) -> list[str]:
    """Return the words of a text, in order and in lower case, without `'s`, stop words included."""
    return list(filter(None, map(_word, _tokens(text))))


def terms(text: str) -> list[str]:
    """Return the index terms of a text, in order."""
    return list(filter(None, map(_TERMS.__getitem__, _tokens(text))))


class _Terms(dict[str, str]):
    """The term of each token, "" where it has none."""

    def __missing__(self, token: str) -> str:
        word = _word(token)
        term = "" if word in STOP_WORDS else stem(word)
        if len(self) >= _KEPT:
            self.clear()
        if len(token) <= _KEPT_LENGTH:
            self[token] = term
        return term


_TERMS = _Terms()


def _word(token: str) -> str:
    """Return a token without `'s`, "" where there are underscores alone, which join words but are none."""
    if token[0] == "_" and not token.strip("_"):
        return ""
    return token[:-2] if token[-2:] in ("'s", "’s", "＇s") else token


def _tokens(text: str) -> list[str]:
    """Return the tokens of a text in lower case."""
    if text.isascii():
        return _ascii(text)
    found: list[str] = []
    for number, part in enumerate(_MIXED.split(text)):
        found += _mixed(part) if number % 2 else _ascii(part)
    return found


def _ascii(text: str) -> list[str]:
    text = text.lower()
    found: list[str] = _ASCII.findall(text)
    return _cut(_ASCII, text, text) if len(text) > _LONGEST and max(map(len, found), default=0) > _LONGEST else found


def _mixed(text: str) -> list[str]:
    text = text.replace("Σ", "σ").replace("İ", "i").lower()  # one character for each, whatever stands beside it
    return _cut(_UNICODE, text.translate(_CLASSES), text)


def _cut(pattern: re.Pattern[str], classes: str, text: str) -> list[str]:
    """Return the tokens of a text, given also as the classes of its characters; none is longer than the longest."""
    if len(text) <= _LONGEST:
        return [text[m.start() : m.end()] for m in pattern.finditer(classes)]
    found, at = [], 0
    while at < len(text):
        m = pattern.match(classes, at, at + _LONGEST)
        token = text[at : m.end()] if m else ""
        if token and _word(token):
            found.append(token)
            at += len(token)
        else:
            at += 1
    return found


class _Classes(dict[int, str]):
    """One letter for each character: what UAX #29 (and, for emoji, UTS #51) calls its class, as far as words depend on it."""

    _SPECIAL = re.compile(
        r"(?P<q>')|(?P<d>\")|(?P<b>[.\u2018\u2019\u2024\ufe52\uff07\uff0e])"  # joiners: in Hebrew, of anything,
        r"|(?P<m>[:\xb7\u0387\u05f4\u2027\ufe13\ufe55\uff1a])"  # of letters,
        r"|(?P<n>[,;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b])"  # of digits
        r"|(?P<z>\u200d)|(?P<v>\ufe0f)|(?P<t>\ufe0e)|(?P<c>\u20e3)|(?P<M>[\U0001f3fb-\U0001f3ff])|(?P<h>[#*])|(?P<R>[\U0001f1e6-\U0001f1ff])"
        r"|(?P<N>\u066b)|(?P<x>[\uff9e\uff9f])|(?P<u>\u202f)|(?P<o>[\u200b\u3006\U00017000-\U00018d08\U0001b170-\U0001b2fb])"
        r"|(?P<K>[\u3031-\u3035\u309b\u309c\u30a0-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u32d0-\u32fe\u3300-\u3357\uff66-\uff9d"
        r"\U0001b000\U0001b164-\U0001b167])"
        # a word each: Han and Hiragana
        r"|(?P<I>[\u2e80-\u2fd5\u3007\u3021-\u3029\u3038-\u303a\u3041-\u3096\u309d-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9"
        r"\U0001b001-\U0001b11f\U0001b150-\U0001b152\U0001f200\U00020000-\U0003ffff])"
        # and pictures
        r"|(?P<E>[\xa9\xae\u203c\u2049\u2122\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25aa\u25ab\u25b6"
        r"\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744"
        r"\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030"
        r"\u303d\u3297\u3299\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f16f\U0001f18e\U0001f191-\U0001f19a"
        r"\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f23c-\U0001f23f\U0001f249-\U0001f53d"
        r"\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f\U0001f848-\U0001f84f"
        r"\U0001f85a-\U0001f85f\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001fffd])"
        # letters that are none by category
        r"|(?P<A>[\u02c2-\u02c5\u02d2-\u02d7\u02de\u02df\u02ed\u02ef-\u02ff\u055b\u055c\u055e\u05f3\u24b6-\u24e9\ua720\ua721\ua789\ua78a\uab5b"
        r"\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189])"
    )
    # Thai, Lao, Burmese, Khmer, … write no spaces: a run of them is one word.
    _UNSPACED = re.compile(
        "[\u0e01-\u0e3a\u0e40-\u0eff\u1000-\u109f\u1780-\u17dd\u1950-\u19df\u1a20-\u1aad\ua9e0-\ua9fe\uaa60-\uaadf\U00011700-\U0001173f]"
    )
    _HEBREW = re.compile("[\u05d0-\u05f2\ufb1d-\ufb4f]")

    def __missing__(self, code: int) -> str:
        char = chr(code)
        special, kind = self._SPECIAL.match(char), category(char)
        if special:
            found = str(special.lastgroup)
        elif kind == "Nd":
            found = "N"
        elif self._UNSPACED.match(char):
            found = {"L": "S", "M": "s"}.get(kind[0], "o")
        elif kind[0] == "L" or kind == "Nl":
            found = "H" if self._HEBREW.match(char) else "A"
        else:
            found = {"Mn": "x", "Mc": "x", "Me": "x", "Cf": "x", "Pc": "u"}.get(kind, "o")
        self[code] = found
        return found


_CLASSES = _Classes()


def _unicode() -> re.Pattern[str]:
    """Return the pattern of tokens over classes: whatever extends a character (X; Y: without its choice of colour or black) goes with it."""
    x, y = "[xzvtcMs]*+", "[xzcMs]*"
    under, katakana, digit = f"(?:u{x})*+", f"K{x}", f"N{x}"
    letter = f"(?:A{x}|H{x}(?:q{x}(?![AH])|d{x}(?=H))?)"
    katakanas = f"{katakana}(?:{under}{katakana})*"
    letters = f"{letter}(?:(?:{under}|[mbq]{x}){letter})*"
    digits = f"{digit}(?:(?:{under}|[nbq]{x}){digit})*"
    body = f"(?:{katakanas}|(?:{digits}|{letters})+)"
    word = f"{under}{body}(?:(?=u){under}{body})*{under}"
    picture = f"(?:z*E{y}v?|M{y})"
    pictures = f"{picture}(?:(?:z|(?<=z)){picture})*"
    return re.compile(f"{word}|{pictures}|(?:[Ss]{x})+|I{x}|h{y}v?c{y}|R{x}R{x}")


_UNICODE = _unicode()


class _Kinds(dict[int, str]):
    """v(owel), c(onsonant), or y, which depends on the letter before it."""

    def __missing__(self, code: int) -> str:
        found = self[code] = "v" if chr(code) in "aeiou" else "y" if chr(code) == "y" else "c"
        return found


_KINDS = _Kinds()
_STEPS: tuple[tuple[int, dict[str, str]], ...] = (  # an ending is replaced where what is before it has an m above this
    (
        0,
        dict(
            ational="ate", tional="tion", enci="ence", anci="ance", izer="ize", bli="ble", alli="al", entli="ent", eli="e", ousli="ous",
            ization="ize", ation="ate", ator="ate", alism="al", iveness="ive", fulness="ful", ousness="ous", aliti="al", iviti="ive",
            biliti="ble", logi="log",
        ),
    ),
    (0, dict(icate="ic", ative="", alize="al", iciti="ic", ical="ic", ful="", ness="")),
    (1, dict.fromkeys("al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split(), "")),
)  # fmt: skip
_ENDINGS = [(tuple(endings), endings, least) for least, endings in _STEPS]


def stem(word: str) -> str:
    """Return the stem of a word in lower case, by Porter's rules (Program 14:3, 1980). A word of one or two characters is its own stem."""
    if len(word) < 3:
        return word
    word = _inflection_off(word)
    for some, endings, least in _ENDINGS:
        if word.endswith(some):
            word = _swapped(word, endings, least)
    if word[-1] == "e":
        kinds = _kinds(word)
        m = kinds.count("vc")
        word = word[:-1] if m > 1 or (m == 1 and not _short(word[:-1], kinds[:-1])) else word
    return word[:-1] if word[-2:] == "ll" and _kinds(word).count("vc") > 1 else word


def _kinds(word: str) -> str:
    """Return "c" or "v" for each letter. How often "vc" occurs in it is what Porter calls m."""
    kinds = word.translate(_KINDS)
    while (at := kinds.find("y")) >= 0:
        kinds = kinds[:at] + ("v" if kinds[:at].endswith("c") else "c") + kinds[at + 1 :]
    return kinds


def _short(word: str, kinds: str) -> bool:
    """Return whether a word ends in consonant, vowel, consonant (not w, x, y), as "hop" does: then an e belongs to it."""
    return kinds[-3:] == "cvc" and word[-1] not in "wxy"


def _inflection_off(word: str) -> str:
    """Return a word without plural, -ed, -ing, and with i for a last y (step 1)."""
    if word[-1] == "s":
        word = word[:-2] if word.endswith(("sses", "ies")) else word if word[-2] == "s" else word[:-1]
    if word.endswith("eed"):
        return word[:-1] if "vc" in _kinds(word[:-3]) else word
    cut = 2 if word.endswith("ed") else 3 if word.endswith("ing") else 0
    if cut and "v" in (kinds := _kinds(word[:-cut])):
        word = word[:-cut]
        if word.endswith(("at", "bl", "iz")):
            return word + "e"
        if kinds[-1] == "c" and word[-1] == word[-2:-1]:
            word = word if word[-1] in "lsz" else word[:-1]
        elif _short(word, kinds) and kinds.count("vc") == 1:
            return word + "e"
    return word[:-1] + "i" if word[-1] == "y" and "v" in _kinds(word[:-1]) else word


def _swapped(word: str, endings: dict[str, str], least: int) -> str:
    """Return a word with its longest ending of these replaced, where what is before it has an m above `least`."""
    for n in range(min(7, len(word) - 1), 1, -1):
        if word[-n:] in endings:
            before, ending = word[:-n], word[-n:]
            if ending == "ion" and before[-1] not in "st":
                return word
            return before + endings[ending] if _kinds(before).count("vc") > least else word
    return word
