"""The shop and its rules: what an action does at a place. Pages are functions of a place, so that text, HTML and a browser show the same."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .catalogue import Catalogue
from .goals import Goals
from .nouns import Nouns
from .render import BACK, BUY, INFO_BUTTONS, NEXT, PREV, SEARCH
from .reward import score
from .types import Goal, Page, Place

RESULTS = 50  # of a search
_ACTION = re.compile(r"(.+)\[(.+)\]")  # greedy, from the start, on one line; what follows is ignored


class Clickable(NamedTuple):
    """What a click does: `kind` button, product or option; `name` of the button, the asin, or the option's name."""

    kind: str
    name: str


class Shop:
    """A catalogue to search and buy in; one per process and catalogue, shared by its sessions.

    per_page  products on a page of results
    """

    def __init__(self, catalogue: Catalogue, nouns: Nouns, *, per_page: int = 10) -> None:
        self.catalogue, self.nouns, self.per_page = catalogue, nouns, per_page
        self._found = functools.lru_cache(maxsize=256)(self._search)

    def search(self, keywords: tuple[str, ...], goal: Goal) -> np.ndarray:
        """Return the rows of what a search finds, best first.

        First words with a meaning of their own: `<r>` 50 at random (drawn for this goal and these words), `<q> query`, `<c> category`,
        `<a> attribute`: all products that have it. (The original crashes on `<a>`, and on `<c>` alone.)
        """
        first, rest = keywords[0], " ".join(keywords[1:]).strip()
        if first == "<r>":
            n = len(self.catalogue)
            return np.array(random.Random(f"{goal.instruction}\n{keywords}").sample(range(n), min(RESULTS, n)), np.int64)
        if first == "<c>":
            return self.catalogue.having("category", keywords[1].strip() if rest else "")
        if first in ("<q>", "<a>"):
            return self.catalogue.having({"<q>": "query", "<a>": "attribute"}[first], rest)
        return self._found(keywords)

    def _search(self, keywords: tuple[str, ...]) -> np.ndarray:
        return np.array([row for row, _ in self.catalogue.index.search(" ".join(keywords), RESULTS)], np.int64)

    def page(self, goal: Goal, place: Place, visited: frozenset[str] = frozenset(), reward: float = 0.0) -> Page:
        """Return the page at a place. Raises KeyError for a product that does not exist."""
        if place.kind == "results":
            rows = self.search(place.keywords, goal)
            shown = rows[(place.page - 1) * self.per_page : place.page * self.per_page]
            return Page(place, goal.instruction, len(rows), tuple(self.catalogue.product(int(r)) for r in shown), visited=visited)
        product = self.catalogue.product(self.row(place.asin)) if place.asin else None
        return Page(place, goal.instruction, product=product, visited=visited, reward=reward)

    def row(self, asin: str) -> int:
        """Return the row of a product. Raises KeyError where there is none."""
        row = self.catalogue.row(asin)
        if row is None:
            raise KeyError(asin)
        return row

    def buy(self, goals: Goals, goal: Goal, asin: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Return what buying a product with these options earns, with its parts (see reward.score)."""
        row = self.row(asin)
        product, wanted = self.catalogue.product(row), self.catalogue.row(goal.asin)
        known = {p.name: p.nouns for p in (product, self.catalogue.product(wanted) if wanted is not None else product) if p.nouns is not None}
        return score(goal, product, options, goals.cost(row), lambda title: known[title] if title in known else self.nouns(title))

    def nouns_from(self, goal: Goal, asin: str) -> str:
        """Return where the nouns of the goal's and the bought product's names are from: known (generated), lists, spacy, or heuristic."""
        rows = {self.catalogue.row(a) for a in (goal.asin, asin) if a}
        names = {p.name: p.nouns for p in (self.catalogue.product(r) for r in rows if r is not None)} or {goal.name: None}
        found = {"known" if nouns is not None else self.nouns.source(name) for name, nouns in names.items()}
        return next(s for s in ("heuristic", "spacy", "lists", "known") if s in found)


def clickables(page: Page) -> dict[str, Clickable]:
    """Return what can be clicked, by its lower-case text: buttons, then products, then options.

    A button keeps its text when an option has the same one; of two options with one value, the later is meant.
    """
    kind = page.place.kind
    names: tuple[str, ...] = ()
    if kind == "index":
        names = (SEARCH,)
    elif kind == "results":
        names = (BACK, PREV, NEXT) if page.place.page > 1 else (BACK, NEXT)
    elif kind == "item":
        names = (BACK, PREV, *INFO_BUTTONS, BUY)
    elif kind == "sub":
        names = (BACK, PREV)
    found = {name.lower(): Clickable("button", name) for name in names}
    for product in page.shown:
        found[product.asin.lower()] = Clickable("product", product.asin)
    if kind == "item" and page.product is not None:
        buttons = set(found)
        for name, values in page.product.options.items():
            for value in values:
                if value not in buttons:
                    found[value] = Clickable("option", name)
    return found


def parsed(action: str) -> tuple[str, str]:
    """Return an action's name and its argument, lower-case; ("", "") where it is none."""
    found = _ACTION.match(action)
    return (found[1], found[2].lower()) if found else ("", "")


def leads(at: Place, what: Clickable, text: str) -> Place:
    """Return where a click leads; `text`: the value of an option."""
    if what.kind == "product":
        return replace(at, kind="item", asin=what.name, options=())
    if what.kind == "option":
        return replace(at, options=tuple({**dict(at.options), what.name: text}.items()))
    if what.name == BACK:
        return Place()
    if what.name == BUY:
        return Place("done", asin=at.asin, options=at.options)
    if what.name == NEXT:
        return replace(at, page=at.page + 1)
    if what.name != PREV:
        return replace(at, kind="sub", sub=what.name)
    if at.kind == "sub":
        return replace(at, kind="item", sub="")
    return Place("results", at.keywords, at.page) if at.kind == "item" else replace(at, page=at.page - 1)


class Session:
    """One shopper with one goal. `act` changes the place; `info` of a purchase stays until the next one."""

    def __init__(self, shop: Shop, goals: Goals, goal: Goal) -> None:
        self.shop, self.goals, self.goal = shop, goals, goal
        self.place, self.visited = Place(), frozenset[str]()
        self.reward_info: dict[str, Any] | None = None
        self._page: Page | None = None
        self._clickables: dict[str, Clickable] | None = None

    @property
    def page(self) -> Page:
        """Return the page of the place."""
        if self._page is None:
            reward = self.reward_info["reward"] if self.reward_info else 0.0
            self._page = self.shop.page(self.goal, self.place, self.visited, reward)
        return self._page

    @property
    def clickables(self) -> dict[str, Clickable]:
        """Return what can be clicked here."""
        if self._clickables is None:
            self._clickables = clickables(self.page)
        return self._clickables

    def act(self, action: str) -> bool:
        """Carry out `search[words]` or `click[text]`; return False, and change nothing, where it is neither or there is nothing such to click."""
        name, argument = parsed(action)
        if name == "search":
            self.go(Place("results", tuple(argument.split(" "))))
            return True
        if name != "click" or argument == "search" or argument not in self.clickables:
            return False
        self.go(leads(self.place, self.clickables[argument], argument))
        return True

    def go(self, place: Place) -> None:
        """Move to a place; on the last page the purchase is scored."""
        self.place, self._page, self._clickables = place, None, None
        if place.kind == "done":
            self.reward_info = self.shop.buy(self.goals, self.goal, place.asin, dict(place.options))
        elif place.kind == "item":
            self.visited |= {place.asin}
        elif place.kind == "index":
            self.visited = frozenset()
