"""Addresses of places: what links say, and what an address means.

    /{sid}                                                             the start of a session
    /search_results/{sid}/{keywords}/{page}
    /item_page/{sid}/{asin}/{keywords}/{page}/{options as JSON}
    /item_sub_page/{sid}/{asin}/{keywords}/{page}/{sub}/{options as a Python dict}
    /done/{sid}/{asin}/{options as a Python dict}

They are the original's, with everything escaped that means something in an address. Keywords are joined by "+"; one that is part of a word
is written %2B. A browser takes "." and ".." (escaped ones, too) for folders: where they are all of the keywords, a "*" stands before them.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any
from urllib.parse import quote, unquote

from .types import SUB_PAGES, Place

LONGEST = 4_000  # characters of the words of a search, or of the options: an address stays below the 65,535 bytes that servers take
_LARGEST = 1_000_000  # page
_FORMS = {
    "search_results": "/search_results/SESSION/WORDS/PAGE",
    "item_page": "/item_page/SESSION/ASIN/WORDS/PAGE/OPTIONS",
    "item_sub_page": "/item_sub_page/SESSION/ASIN/WORDS/PAGE/SUB/OPTIONS",
    "done": "/done/SESSION/ASIN/OPTIONS",
}
RESERVED = frozenset(_FORMS) | {"static", "health", "favicon.ico", "robots.txt"}
_SID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@~/-]{0,127}")
_ASIN = re.compile(r"[!-~]{1,10}")
_DOTS = (".", "..")


class BadAddress(ValueError):
    """An address that means no place. `status`: 400 or 404, or 414 where it is too long."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def path(sid: str, at: Place) -> str:
    """Return the path of a place, escaped: what a link says."""
    sid, asin, keywords = _quoted(sid), _quoted(at.asin), _joined(at.keywords)
    if at.kind == "index":
        return f"/{sid}"
    if at.kind == "results":
        return f"/search_results/{sid}/{keywords}/{at.page}"
    options = dict(at.options)
    if at.kind == "item":
        return f"/item_page/{sid}/{asin}/{keywords}/{at.page}/{_quoted(json.dumps(options))}"
    if at.kind == "sub":
        return f"/item_sub_page/{sid}/{asin}/{keywords}/{at.page}/{at.sub}/{_quoted(repr(options))}"
    return f"/done/{sid}/{asin}/{_quoted(repr(options))}"


def place(path: str) -> tuple[str, Place]:
    """Return (session, place) of a path as it is in an address, escaped. Raises BadAddress, which says what is wrong."""
    head, *rest = path.partition("?")[0].removeprefix("/").split("/")
    if not rest:
        return _sid(head), Place()
    if head not in _FORMS:
        raise BadAddress(404, f"no page of the shop has an address like this one. There are: /SESSION, {', '.join(_FORMS.values())}")
    form = _FORMS[head]
    if len(rest) != form.count("/") - 1:
        raise BadAddress(
            404, f"this address has {len(rest) + 1} parts between slashes, and should look like {form}. A slash within a part is written %2F"
        )
    given = dict(zip(form.split("/")[2:], rest, strict=True))
    sid = _sid(given["SESSION"])
    keywords, page = _keywords(given.get("WORDS", "")), _page(given.get("PAGE", "1"))
    if head == "search_results":
        return sid, Place("results", keywords, page)
    asin, options = _asin(given["ASIN"]), _options(given["OPTIONS"])
    if head == "done":
        return sid, Place("done", asin=asin, options=options)
    if head == "item_page":
        return sid, Place("item", keywords, page, asin, options=options)
    if given["SUB"] not in SUB_PAGES:
        raise BadAddress(404, f"a product has no page {_shown(given['SUB'])}; there are {', '.join(SUB_PAGES)}")
    return sid, Place("sub", keywords, page, asin, given["SUB"], options)


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        raise BadAddress(400, f"{_shown(text)} in the address is not valid UTF-8") from None


def _joined(keywords: tuple[str, ...]) -> str:
    words = "+".join(map(_quoted, keywords))
    return f"*{words}" if words in _DOTS else words


def _keywords(text: str) -> tuple[str, ...]:
    if text.startswith("*") and text[1:] in _DOTS:
        text = text[1:]
    words = tuple(word for part in text.split("+") for word in _unquoted(part).split(" "))  # a keyword has no space: %20 is one between two
    if sum(map(len, words)) > LONGEST:
        raise BadAddress(414, f"the words of a search are at most {LONGEST:,} characters long")
    return words


def _sid(text: str) -> str:
    sid = _unquoted(text)
    if not _SID.fullmatch(sid) or sid in RESERVED:
        allowed = "1 to 128 letters, digits, or any of _ . : @ ~ / -, and begins with a letter, a digit or _"
        raise BadAddress(404, f"{_shown(sid)} is no name of a session. A name has {allowed}")
    return sid


def _asin(text: str) -> str:
    asin = _unquoted(text)
    if not _ASIN.fullmatch(asin):
        raise BadAddress(404, f"{_shown(asin)} is no product number (ASIN): it has 1 to 10 characters")
    return asin


def _page(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text) or int(text) > _LARGEST:
        raise BadAddress(404, f"{_shown(text)} is no page number: it is a whole number from 1 to {_LARGEST:,}")
    return int(text)


def _options(text: str) -> tuple[tuple[str, str], ...]:
    """Return options written as JSON or as a Python dict; nothing is as good as {}."""
    said = _unquoted(text)
    if len(said) > LONGEST:
        raise BadAddress(414, f"the options in the address are longer than {LONGEST:,} characters")
    found = _read(said) if said else {}
    if not isinstance(found, dict) or not all(isinstance(x, str) for pair in found.items() for x in pair):
        raise BadAddress(
            400, f'the options in the address say {_shown(said)}; they are names with values, all of them text, such as {{"color": "red"}}'
        )
    return tuple(found.items())


def _read(said: str) -> Any:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(said)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
