"""Pages as HTML: what the original's recorded pages show, what the text mode shows, links that lead where clicks do, and nothing that can do harm."""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.webshop import address, catalogue, render
from agentgym.envs.webshop.env import WebShopEnv
from agentgym.envs.webshop.html import SCRIPT, Report, page_html, plain_html, policy
from agentgym.envs.webshop.shop import clickables
from agentgym.envs.webshop.types import Goal, Page, Place, Product

_SILENT = ("script", "style", "head", "title", "noscript")  # what is in them is not seen
_EMPTY = ("input", "img", "meta", "link", "br", "hr")


class Seen(HTMLParser):
    """What a page shows: texts [pieces in document order], ids, elements with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.said: list[str] = []  # the text of each element
        self._open: list[int] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.said.append("")
        if tag not in _EMPTY:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        at = [i for i in self._open if self.elements[i][0] == tag]
        if at:
            del self._open[self._open.index(at[-1]) :]

    def handle_data(self, data: str) -> None:
        for i in self._open:
            self.said[i] += data
        # As the original reads them: white space with a line break in it, between elements, is no text.
        if not any(self.elements[i][0] in _SILENT for i in self._open) and not (data.isspace() and "\n" in data):
            self.texts.append(data)

    @property
    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]

    @property
    def clickable(self) -> list[tuple[str, str]]:
        """What agents look for: buttons, links to products, options; with their texts."""
        found = []
        for (tag, attrs), said in zip(self.elements, self.said, strict=True):
            classes = attrs.get("class", "").split()
            if "btn" in classes:
                found.append((tag, said.strip()))
            elif classes == ["product-link"]:
                found.append((tag, said))
            elif attrs.get("type") == "radio":
                found.append(("radio", attrs["value"]))
        return found

    def one(self, **wanted: str) -> tuple[str, dict[str, str], str]:
        """The only element with these attributes, and its text."""
        [found] = [(tag, attrs, said) for (tag, attrs), said in zip(self.elements, self.said, strict=True) if wanted.items() <= attrs.items()]
        return found


# ---- the original's recorded pages


@functools.cache
def recorded_pages(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "transcripts/html_a.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def replayed(webshop_data: Path) -> WebShopEnv:
    return WebShopEnv(data=webshop_data, replay=webshop_data / "transcripts", feedback=False, max_steps=None, observation="html")


def test_recorded_pages(replayed: WebShopEnv, webshop_data: Path) -> None:
    pages = recorded_pages(webshop_data)
    assert len(pages) == 20
    for recorded in pages:
        page, _ = replayed.reset(options={"task": f"{recorded['human_or_synthetic']}/{recorded['goal_index']}"})
        for action in recorded["actions"]:
            page = replayed.step(action)[0]
        ours, theirs = Seen(page), Seen(recorded["html"])
        assert [t.strip() for t in ours.texts] == [t.strip() for t in theirs.texts], recorded["tag"]
        assert ours.clickable == theirs.clickable, recorded["tag"]
        if recorded["actions"]:
            assert set(ours.ids) == set(theirs.ids), recorded["tag"]
        assert [a["for"] for t, a in ours.elements if t == "label"] == [a["for"] for t, a in theirs.elements if t == "label"]


def test_what_agents_look_for(replayed: WebShopEnv) -> None:
    index = Seen(replayed.reset(options={"task": "synthetic/868"})[0])
    tag, box, _ = index.one(id="search_input")
    assert (tag, box["type"], box["name"]) == ("input", "text", "search_query")
    assert index.one(id="form-buscar")[1]["method"] == "post" and index.one(id="form-buscar")[1]["action"] == "/868"
    replayed.step("search[mens shorts casual]")
    item = Seen(replayed.step("click[b099231v35]")[0])
    assert item.one(id="product-image")[0] == "img" and "purchase" in item.one(**{"class": "btn purchase"})[1]["class"]
    instruction = item.elements[item.elements.index(("div", {"id": "instruction-text"})) + 1]
    assert instruction[0] == "h4"
    chosen = Seen(replayed.step("click[green]")[0])
    assert [a["value"] for _, a in chosen.elements if "checked" in a] == ["green"]
    assert not any("checked" in a for _, a in item.elements)
    done = Seen(replayed.step("click[buy now]")[0])
    start = done.elements.index(("div", {"id": "reward"}))
    assert next(said for (tag, _), said in zip(done.elements[start:], done.said[start:], strict=True) if tag == "pre") == "0.0"
    assert {"asin", "options", "goal", "reward_info"} <= set(done.ids)


# ---- the same as the text mode


@pytest.fixture(scope="module")
def shop() -> WebShopEnv:
    return WebShopEnv(products=150, size="full", max_steps=None, split="all")


def walk(env: WebShopEnv, seed: int, steps: int) -> Iterator[Page]:
    """A random walk: the pages that it comes by."""
    rng = random.Random(seed)
    env.reset(seed=seed)
    for _ in range(steps):
        visit = env._here
        yield visit.page
        names = [n for n in visit.clickables if n != "search" and (n != "buy now" or rng.random() < 0.3)]
        words = " ".join(rng.sample(visit.goal.instruction.split(), 2))
        visit.act(f"search[{words}]" if not names or rng.random() < 0.1 else f"click[{rng.choice(names)}]")
    if env._here.act("click[buy now]"):
        yield env._here.page


def test_text_is_that_of_the_text_mode(shop: WebShopEnv) -> None:
    kinds: dict[str, int] = {}
    for seed in range(16):
        for page in walk(shop, seed, 40):
            seen = Seen(page_html(page, "a sid"))
            assert " [SEP] ".join(t.strip() for t in seen.texts) == render.text(page)
            names = [said.lower() for _, said in sorted(seen.clickable, key=lambda c: c[0] == "radio")]  # buttons and links before options
            assert list(dict.fromkeys(names)) == list(clickables(page)), page.place
            assert len(set(seen.ids)) == len(seen.ids)
            kinds[page.place.kind] = kinds.get(page.place.kind, 0) + 1
    assert set(kinds) == {"index", "results", "item", "sub", "done"}


def test_text_of_real_pages(replayed: WebShopEnv) -> None:
    for seed in range(8):
        for page in walk(replayed, seed, 25):
            assert " [SEP] ".join(t.strip() for t in Seen(page_html(page, "1")).texts) == render.text(page)


def test_links_lead_where_clicks_do(shop: WebShopEnv) -> None:
    """Each button, link and option has the address of the place to which a click on it moves a session."""
    checked = 0
    for seed in range(6):
        shop.reset(seed=seed)
        rng = random.Random(seed)
        for _ in range(12):
            session: Any = shop._here
            at, before = session.place, session.visited
            targets = links(Seen(page_html(session.page, "sid")))
            for name in [n for n in session.clickables if n != "search"]:
                session.act(f"click[{name}]")
                sid, place = address.place(targets[name])
                assert sid == "sid" and render.url(place, "") == render.url(session.place, ""), name
                checked += 1
                session.go(at)
                session.visited = before
            names = [n for n in session.clickables if n not in ("search", "back to search")]
            session.act(f"click[{rng.choice(names)}]" if names else f"search[{session.goal.query or session.goal.name}]")
    assert checked > 100


def links(seen: Seen) -> dict[str, str]:
    """Where each clickable leads, by its lower-case text; the one that is meant, where several have the same text."""
    found, buttons, form = {}, set(), ""
    for (tag, attrs), said in zip(seen.elements, seen.said, strict=True):
        if tag == "form":
            form = attrs.get("action", "")
        if tag == "button":
            buttons.add(said.lower())
            found[said.lower()] = form
        elif attrs.get("class") == "product-link":
            found[said.lower()] = attrs["href"]
        elif attrs.get("type") == "radio":
            found[attrs["value"]] = attrs["data-url"]
    for (tag, attrs), said in zip(seen.elements, seen.said, strict=True):  # a button is meant before an option
        if tag == "form" and said.strip().lower() in buttons:
            found[said.strip().lower()] = attrs["action"]
    return found


# ---- nothing that can do harm

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Product:
    """A product of hostile texts, through the catalogue on disk."""
    folder = tmp_path_factory.mktemp("evil")
    product = Product(
        "EVIL000001",
        f"{EVIL} & \"quoted\" 'title'",
        description=f"</p>{EVIL}",
        bullets=(EVIL, "<!-- a comment", "{{ 7 * 7 }}"),
        image='x" onerror="alert(1)',
        options={f'"><b>{EVIL}': (f"' onclick='{EVIL}", "javascript:alert(1)"), "size 1": ("a", "b"), "size ": tuple("abcdefghijkl")},
        attributes=(EVIL,),
    )
    catalogue.build([product], folder, progress=False)
    return catalogue.Catalogue(folder).product(0)


GOAL = Goal(0, "EVIL000001", EVIL, EVIL, EVIL, f"{EVIL} › x", f"find {EVIL}", (EVIL,), {EVIL: EVIL}, 10.0)


def evil_pages(product: Product) -> Iterator[tuple[Page, Report | None]]:
    words = ('"><script>alert(1)</script>', "a'b", "</title>", "&lt;")
    results = Place("results", words)
    item = Place("item", words, 1, product.asin, options=tuple((name, values[0]) for name, values in product.options.items()))
    yield Page(Place(), GOAL.instruction), None
    yield Page(results, GOAL.instruction, 1, (product,)), None
    yield Page(item, GOAL.instruction, product=product), None
    for sub in ("Description", "Features", "Reviews", "Attributes"):
        yield Page(Place("sub", words, 1, product.asin, sub, item.options), GOAL.instruction, product=product), None
    done = Page(Place("done", asin=product.asin, options=item.options), GOAL.instruction, product=product)
    yield done, None
    yield done, Report(GOAL, {"r_type": EVIL, "r_price": True})


def test_texts_are_escaped(evil: Product) -> None:
    for page, report in evil_pages(evil):
        for images in (False, True):
            html = page_html(page, "s", report, images)
            assert EVIL not in html
            seen = Seen(html)
            assert [said for (tag, _), said in zip(seen.elements, seen.said, strict=True) if tag == "script"] == [SCRIPT] * (
                page.place.kind == "item"
            )
            assert not any(name.startswith("on") for _, attrs in seen.elements for name in attrs)
            if report is None:
                assert [t.strip() for t in seen.texts] == render.text(page).split(" [SEP] ")
            else:
                assert EVIL in "".join(seen.texts)
    assert EVIL not in plain_html("error", status=404, title="x", message=EVIL)


def test_option_values_and_ids_survive(evil: Product) -> None:
    page = Page(Place("item", ("x",), 1, evil.asin), "", product=evil)
    seen = Seen(page_html(page, "s"))
    found = [(a["name"], a["value"]) for _, a in seen.elements if a.get("type") == "radio"]
    assert found == [(name, value) for name, values in evil.options.items() for value in values]
    assert len(set(seen.ids)) == len(seen.ids), "labels of two options would mean the same one"


def test_nothing_is_loaded_from_elsewhere(evil: Product) -> None:
    """All that a page loads is the style sheet, unless pictures are asked for."""
    for page, report in evil_pages(evil):
        for images in (False, True):
            for tag, attrs in Seen(page_html(page, "s", report, images)).elements:
                for name in ("src", "href", "action", "data-url"):
                    if name in attrs and tag != "link" and not (images and tag == "img"):
                        assert name != "src" and attrs[name].startswith("/") and not attrs[name].startswith("//"), (tag, attrs)
                if tag == "link":
                    assert attrs["href"] in ("/static/style.css", "data:,")
    assert Seen(page_html(Page(Place("item", ("x",), 1, evil.asin), "", product=evil), "s")).one(id="product-image")[1]["data-src"] == evil.image
    assert "default-src 'none'" in policy(False) and "https:" not in policy(False) and "https:" in policy(True)


def test_last_page_for_people(evil: Product) -> None:
    place = Place("done", asin=evil.asin)
    parts = {"r_type": 0.5, "query_match": False, "r_att": 1 / 3, "w_att": 0.25, "r_price": True, "w_price": 0.25}
    seen = Seen(page_html(Page(place, "", product=evil, reward=0.25), "s", Report(GOAL, parts)))
    table = seen.one(id="reward_info")[2]
    assert table.split("\n")[1:] != [] and "0.333" in table and "yes" in table and "no" in table
    assert "10.0" in seen.one(id="goal-price")[2] and "EVIL000001" in seen.one(id="goal-asin")[2]
    assert json.loads(seen.one(id="goal")[2])["attributes"] == [EVIL]
    assert {"reward", "asin", "options", "goal"} <= set(seen.ids) and "MTurk" not in "".join(seen.texts)
