"""Addresses: every place has one, it survives the way through a browser, and whatever else somebody writes is refused in words."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentgym.envs.webshop import render
from agentgym.envs.webshop.address import LONGEST, BadAddress, path, place
from agentgym.envs.webshop.types import SUB_PAGES, Place

ANY = st.characters(codec=None)  # lone surrogates, too: an action may hold them
KEYWORD = st.text(ANY, max_size=12).filter(lambda w: " " not in w)
KEYWORDS = st.lists(
    st.one_of(KEYWORD, st.sampled_from([".", "..", "*..", "%2e", "+", "a/b", "%", "?", "#", "<script>", "c++"])), min_size=1, max_size=5
).map(tuple)
PAGE = st.integers(1, 1_000_000)
ASIN = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=10)
OPTIONS = st.dictionaries(st.text(ANY, max_size=10), st.text(ANY, max_size=10), max_size=4).map(lambda d: tuple(d.items()))
SID = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:@~/-]{0,20}", fullmatch=True).filter(lambda s: s not in ("done", "static", "health"))
PLACE = st.one_of(
    st.just(Place()),
    st.builds(Place, st.just("results"), KEYWORDS, PAGE),
    st.builds(Place, st.just("item"), KEYWORDS, PAGE, ASIN, st.just(""), OPTIONS),
    st.builds(Place, st.just("sub"), KEYWORDS, PAGE, ASIN, st.sampled_from(SUB_PAGES), OPTIONS),
    st.builds(lambda asin, options: Place("done", asin=asin, options=options), ASIN, OPTIONS),
)


@given(SID, PLACE)
@example("s", Place("results", ("..",)))
@example("s", Place("results", (".",)))
@example("s", Place("results", ("*..",)))
@example("s", Place("results", ("", "")))
@example("s", Place("item", ("a+b", "c/d", '"%', "?#&"), 3, "A", options=(("it's", '5" x 7"'), ("ü", "\u2028"))))
def test_every_place_has_an_address(sid: str, at: Place) -> None:
    written = path(sid, at)
    assert written.isascii() and not set(written) & set(" ?#\\\"'<>`{}|^\t\n")
    assert urlsplit(urljoin("http://shop/other/page", written)).path == written, "a browser would take it for another path"
    assert not any(unquote(part) in (".", "..") for part in written.split("/")), "browsers take escaped dots for folders, too"
    assert place(written) == (sid, at)
    assert place(f"{written}?") == (sid, at)  # what a form without fields goes to


def test_ordinary_words_as_in_the_original() -> None:
    options = (("color", "red"), ("size", "2t"))
    for at in (
        Place(),
        Place("results", ("red", "shoes"), 2),
        Place("item", ("red", "shoes"), 2, "B00TEST", options=options),
        Place("sub", ("red", "shoes"), 2, "B00TEST", "Features", options),
        Place("done", asin="B00TEST", options=options),
    ):
        assert render.HOST + unquote(path("abc", at)) == render.url(at, "abc")
    assert path("abc", Place("results", ("red", "shoes"), 2)) == "/search_results/abc/red+shoes/2"


@pytest.mark.parametrize("said", ['{"color": "red"}', "{'color': 'red'}", "%7B%22color%22:%20%22red%22%7D", "%7B'color':'red'%7D"])
def test_options_in_both_notations(said: str) -> None:
    assert place(f"/done/s/B00TEST/{said}")[1].options == (("color", "red"),)
    assert place(f"/item_page/s/B00TEST/x/1/{said}")[1].options == (("color", "red"),)


def test_written_by_hand() -> None:
    assert place("/search_results/s/red%20shoes/1")[1].keywords == ("red", "shoes")
    assert place("/item_page/s/B00TEST/red/1/")[1].options == ()
    assert place("/search_results/s/*foo/1")[1].keywords == ("*foo",)


@pytest.mark.parametrize(
    ("written", "status", "said"),
    [
        ("", 404, "no name of a session"),
        ("/", 404, "no name of a session"),
        ("/a b", 404, "no name of a session"),
        ("/%2e%2e", 404, "no name of a session"),
        ("/" + "a" * 200, 404, "1 to 128"),
        ("/health", 404, "no name of a session"),
        ("/nothing/like/this", 404, "/search_results/SESSION/WORDS/PAGE"),
        ("/search_results/s/a/b/1", 404, "%2F"),
        ("/search_results/s/red/0", 404, "no page number"),
        ("/search_results/s/red/1e3", 404, "no page number"),
        ("/search_results/s/red/٣", 404, "no page number"),
        ("/search_results/s/red/99999999999", 404, "no page number"),
        ("/search_results/s/%ff/1", 400, "UTF-8"),
        (f"/search_results/s/{'a' * (LONGEST + 1)}/1", 414, "at most"),
        ("/item_page/s/B00TEST12345/red/1/{}", 404, "ASIN"),
        ("/item_page/s//red/1/{}", 404, "ASIN"),
        ("/item_sub_page/s/B00TEST/red/1/Price/{}", 404, "Description, Features, Reviews, Attributes"),
        ("/done/s/B00TEST/{", 400, "names with values"),
        ('/done/s/B00TEST/["red"]', 400, "names with values"),
        ('/done/s/B00TEST/{"color": 1}', 400, "names with values"),
        ('/done/s/B00TEST/{"color": {"a": "b"}}', 400, "names with values"),
        ("/done/s/B00TEST/{1: 'red'}", 400, "names with values"),
        ("/done/s/B00TEST/{'a': __import__('os').getcwd()}", 400, "names with values"),
        ("/done/s/B00TEST/{**{'a': 'b'}}", 400, "names with values"),
        ("/done/s/B00TEST/" + "[" * 3900, 400, "names with values"),
        ("/done/s/B00TEST/" + "{'a':" * 700, 400, "names with values"),
        ("/done/s/B00TEST/" + "-" * 3900 + "1", 400, "names with values"),
        (f'/done/s/B00TEST/{{"a": "{"b" * LONGEST}"}}', 414, "longer than"),
    ],
)
def test_refused(written: str, status: int, said: str) -> None:
    with pytest.raises(BadAddress, match=said.replace("(", r"\(")) as e:
        place(written)
    assert e.value.status == status and len(str(e.value)) < 500


@given(
    st.one_of(
        st.text(ANY),
        st.lists(st.one_of(st.text(ANY, max_size=8), st.sampled_from(["done", "item_page", "search_results", "{}", "1"]))).map(
            lambda p: "/" + "/".join(p)
        ),
    )
)
def test_anything_else_is_refused_in_words(written: str) -> None:
    found: Any = None
    try:
        found = place(written)
    except BadAddress as e:
        assert e.status in (400, 404, 414) and str(e)
    if found:
        assert place(path(*found)) == found
