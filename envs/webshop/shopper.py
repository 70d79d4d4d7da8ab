"""A scripted shopper: searches with the words that matter, takes the first product that fulfils everything, chooses its options, buys."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rapidfuzz.fuzz import token_set_ratio

from agentgym.lucene import terms

from .shop import Shop, clickables
from .types import Goal, Product

if TYPE_CHECKING:
    from .env import Visit

_ALL = 2.0  # full marks, and of the kind that was asked for
_WORD = re.compile(r"[^\s,;()\[\]]+")


class Shopper:
    """Plays one episode. It knows what the goal asks for (not only its words), and can tell of any product what it would earn.

    Where no search finds a product of full marks it takes the best that it found.
    """

    def __init__(self, shop: Shop, visit: Callable[[], Visit], earns: Callable[[str, dict[str, str]], dict[str, Any]]) -> None:
        self._shop, self._visit, self._earns = shop, visit, earns
        self._queries: list[str] = []
        self._tried = 0
        self._targets: dict[tuple[str, ...], tuple[float, str]] = {}  # words → (worth, asin) of the best product found with them

    def act(self, observation: str, info: dict[str, Any]) -> str:
        """Return the next action."""
        visit = self._visit()
        at, goal = visit.place, visit.goal
        if at.kind == "results":
            return self._on_results(visit)
        if at.kind == "item":
            product = visit.page.product
            assert product is not None
            if product.asin != self._target(at.keywords, goal)[1]:
                return "click[< prev]"
            chosen = dict(at.options)
            left = [value for name, value in self._choices(product, goal).items() if chosen.get(name) != value]
            return f"click[{left[0]}]" if left else "click[buy now]"
        if at.kind == "sub":
            return "click[< prev]"
        return f"search[{self._next_query(goal)}]"

    def _on_results(self, visit: Visit) -> str:
        at, goal = visit.place, visit.goal
        worth, asin = self._target(at.keywords, goal)
        queries = self._all_queries(goal)
        if worth < _ALL and self._tried < len(queries):
            return f"search[{self._next_query(goal)}]"
        if worth < _ALL:  # nothing is perfect: back to the words that found the best
            best = max(self._targets, key=lambda words: self._targets[words][0])
            if self._targets[best][0] > worth:
                return f"search[{' '.join(best)}]"
        if asin.lower() in clickables(visit.page):
            return f"click[{asin.lower()}]"
        rows = self._shop.search(at.keywords, goal)
        here = next((i for i, row in enumerate(rows) if self._shop.catalogue.product(int(row)).asin == asin), 0) // self._shop.per_page + 1
        return "click[next >]" if at.page < here else "click[< prev]" if at.page > here else "click[back to search]"

    def _target(self, keywords: tuple[str, ...], goal: Goal) -> tuple[float, str]:
        """Return (worth, asin) of the first product among the results that is worth most; _ALL: of the kind wanted, and with full marks."""
        if keywords not in self._targets:
            best = (-1.0, "")
            for row in self._shop.search(keywords, goal):
                product = self._shop.catalogue.product(int(row))
                info = self._earns(product.asin, self._choices(product, goal))
                value = info["reward"] + info["query_match"]  # the reward alone takes a sweater for a jacket that has the same attributes
                if value > best[0]:
                    best = (value, product.asin)
                if value == _ALL:
                    break
            self._targets[keywords] = best
        return self._targets[keywords]

    def _choices(self, product: Product, goal: Goal) -> dict[str, str]:
        """Return what to choose of a product's options: for each wanted value the one that is most like it, if it is much like it."""
        chosen: dict[str, str] = {}
        for wanted in goal.wanted:
            name, value = wanted if isinstance(wanted, tuple) else (None, wanted)
            pairs = [(n, v) for n, values in product.options.items() if n not in chosen for v in values]
            scored = [((v == value) * 2 + (n == name), token_set_ratio(str(value), v), -i, (n, v)) for i, (n, v) in enumerate(pairs)]
            best = max(scored, default=None)
            if best is not None and (best[0] >= 2 or best[1] > 85):
                chosen[best[3][0]] = best[3][1]
        return chosen

    def _all_queries(self, goal: Goal) -> Sequence[str]:
        if not self._queries:
            kind = goal.query or goal.name
            wanted = [w[1] if isinstance(w, tuple) else w for w in goal.wanted]
            words = _key_words(goal.instruction, [kind, *goal.attributes, *wanted])
            plain = " ".join(dict.fromkeys([*goal.attributes, kind]))
            self._queries = [q for q in dict.fromkeys([words, plain, _clean(goal.name)]) if q]
        return self._queries

    def _next_query(self, goal: Goal) -> str:
        queries = self._all_queries(goal)
        self._tried += 1
        return queries[min(self._tried, len(queries)) - 1]


def _key_words(instruction: str, phrases: Sequence[str]) -> str:
    """Return the words of an instruction that stand (in some form) in one of the phrases, in its order, each once, without the price clause."""
    wanted = {term for phrase in phrases for term in terms(phrase)}
    said = _WORD.findall(instruction.lower().partition(", and price lower than")[0])
    return " ".join(dict.fromkeys(w.rstrip(".:") for w in said if wanted.intersection(terms(w))))


def _clean(name: str) -> str:
    return " ".join(_WORD.findall(name))
