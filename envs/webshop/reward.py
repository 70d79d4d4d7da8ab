"""What a purchase earns: how far the bought product is what the instruction describes. The official WebShop reward, part by part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rapidfuzz.fuzz import token_set_ratio

from .colors import plain
from .types import Goal, Product

NOUNLESS = 0.2  # the title score for a goal whose name has no noun
_LATIN_1 = dict.fromkeys(range(128, 256))  # the official comparison drops these characters, and only these
_NOT_WORD = re.compile(r"\W")


@lru_cache(maxsize=1 << 16)
def _plain_words(text: str) -> str:
    return _NOT_WORD.sub(" ", text.translate(_LATIN_1)).lower().strip()  # rapidfuzz's own default_process splits at "_" too


def alike(a: str, b: str) -> bool:
    """Return whether two texts have nearly the same words: token_set_ratio, rounded to a whole number as the official one, above 85."""
    return token_set_ratio(_plain_words(a), _plain_words(b), score_cutoff=85.5) > 0


def title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    """Return how many of the wanted title's nouns the bought title has; a noun that is repeated counts once above the line, each time below it."""
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else NOUNLESS


def same_category(a: str, b: str) -> bool:
    """Return whether two paths "A › B › C" share at least two levels, wherever they stand."""
    return len({level.strip() for level in a.split("›")} & {level.strip() for level in b.split("›")}) >= 2


def type_factor(matches: bool, title: float) -> float:
    """Return r_type. `matches`: same query or same category; a title with too little in common overrides even that.

    >>> [type_factor(False, s) for s in (0.3, 0.2, 0.05, 0.0)], type_factor(True, 0.05)
    ([1.0, 0.5, 0.1, 0.0], 0.1)
    """
    if title == 0:
        return 0.0
    if title < 0.1:
        return 0.1
    return 1.0 if matches or title > 0.2 else 0.5


def attribute_hits(wanted: Sequence[str], product: Product) -> int:
    """Return how many of the wanted attributes the product has, by its own attributes or else word for word in its texts."""
    missed = [want for want in wanted if not any(alike(own, want) for own in product.attributes)]
    hits = len(wanted) - len(missed)
    if missed:
        texts = (product.name.lower(), " ".join(product.bullets).lower(), product.description.lower())
        hits += sum(any(want in text for text in texts) for want in missed)
    return hits


def _wanted_text(option: str | tuple[str, str]) -> str:
    """A pair is compared in its printed form, so that the words of the option's name count too, and only a bare value is reduced to its colour."""
    return plain(option) if isinstance(option, str) else str(option)


def option_hits(wanted: Sequence[str | tuple[str, str]], chosen: Iterable[str]) -> int:
    """Return how many of the wanted options some chosen value is like."""
    values, texts = [plain(value) for value in chosen], [_wanted_text(want) for want in wanted]
    return sum(any(alike(value, text) for value in values) for text in texts)


def score(goal: Goal, product: Product, options: Mapping[str, str], price: float, nouns: Callable[[str], Sequence[str]]) -> dict[str, Any]:
    """Return the reward in [0, 1] of buying `product`, and its parts.

    options  name → value of what was chosen
    price    what is paid, in dollars; the goal's ceiling is still within it
    nouns    returns the nouns of a title, with repeats

    With n attributes and m options that the goal wants: reward = r_type · (attribute hits + option hits + r_price) / (n + m + 1), or
    r_type · (r_att · w_att + r_option · w_option + r_price · w_price). r_option and w_option are there only if m > 0.
    """
    wanted = goal.wanted
    title = title_score(nouns(product.name), nouns(goal.name))
    query_match, category_match = product.query == goal.query, same_category(product.product_category, goal.product_category)
    r_type = type_factor(query_match or category_match, title)
    n, m = len(goal.attributes), len(wanted)
    attributes, chosen, r_price = attribute_hits(goal.attributes, product), option_hits(wanted, options.values()), price <= goal.price_upper
    every = n + m + 1
    info = {
        "r_type": r_type,
        "r_att": attributes / n if n else 0.0,
        "w_att": n / every,
        "query_match": query_match,
        "category_match": category_match,
        "title_score": title,
    }
    if m:
        info |= {"r_option": chosen / m, "w_option": m / every}
    # divided before multiplied, as the official one: the last digit of the sum depends on it
    return info | {"r_price": r_price, "w_price": 1 / every, "reward": (attributes + chosen + r_price) / every * r_type}
