"""What the generated products are made from: the kinds of each size, and how often what comes. The shares follow the official 1,000 products."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from . import words_beauty, words_electronics, words_fashion, words_garden, words_grocery, words_mini
from .instructions import short_wish, wish
from .types import Product, Wish
from .words import RIVALS, Attribute, Family, Option, Ware, listed
from .words_nouns import OTHER_WORDS
from .words_texts import DESCRIPTION_LENGTH, Draw, Kind, Writer, bullet_count, mini_texts, nouns, pools, title
from .words_values import BRANDS, ORDERED, POOLS

Counts = Mapping[str, tuple[int, ...]]  # category → numbers, each as often as it is to come
Points = Mapping[str, tuple[float, ...]]  # category → equally spaced quantiles

_FAMILIES = (*words_fashion.FAMILIES, *words_beauty.FAMILIES, *words_electronics.FAMILIES, *words_garden.FAMILIES, *words_grocery.FAMILIES)
_SHARES = {"fashion": 0.2, "beauty": 0.238, "electronics": 0.229, "garden": 0.216, "grocery": 0.117}  # of all products
_POPULAR = (9, 2, 1, 4, 1, 2, 6)  # how often the wares of a category come, in turn
_RIVALS = tuple(frozenset(listed(line)) for line in RIVALS)
_RATIOS = tuple(itertools.accumulate([1.045] * 71, lambda x, step: x * step, initial=0.18))  # of a price to the typical one; no pow: exact anywhere


class World:
    """What the sizes have in common: how attributes, options, prices and a wish are drawn."""

    kinds: tuple[Kind, ...]  # each as often as it is to come
    values: Mapping[str, tuple[str, ...]]
    ordered: Iterable[str]  # names of pools from which neighbours are taken
    attribute_counts: tuple[int, ...]
    own_names: float  # share of products with attributes that have another name of theirs as one
    named_counts: tuple[int, ...]  # attributes in a wish
    option_counts: Counts
    value_counts: Points
    ranges: Mapping[str, float]  # share of products with two prices
    missing: Mapping[str, float]  # share of products without a price
    cents: tuple[int, ...]

    def texts(self, draw: Draw, kind: Kind, brand: str, noun: int, attributes: Sequence[Attribute], fixed: str) -> tuple[str, tuple[str, ...], str]:
        """Return name, bullets and description. `fixed`: the value of an option of which there is no choice, or ""."""
        raise NotImplementedError

    def say(self, draw: Draw, kind: Kind, noun: int, attributes: Sequence[Attribute], options: Sequence[tuple[str, str]]) -> str:
        """Return the text of a wish."""
        raise NotImplementedError

    def product(self, key: int, maker: int, asin: str) -> Product:
        """Return the product of a random `key`. Those of the same random `maker` are of one kind and brand."""
        draw = Draw(key)
        lead = draw if maker == key else Draw(maker)
        kind = lead.pick(self.kinds)
        brand = lead.pick(kind.brands)
        ware, category = kind.ware, kind.family.category
        attributes, options = self._attributes(draw, kind), self._options(draw, kind)
        prices = self._prices(draw, category, ware.price)
        noun = int(draw.random() * len(ware.nouns))
        name, bullets, description = self.texts(draw, kind, brand, noun, attributes, self._fixed(draw, kind, options))
        return Product(
            asin=asin,
            name=name,
            category=category,
            query=ware.query,
            product_category=ware.path,
            prices=prices,
            description=description,
            bullets=bullets,
            options=options,
            attributes=tuple(a.name for a in attributes) or ("DUMMY_ATTR",),
            wishes=(self._wish(draw, kind, noun, attributes, options),) if attributes else (),
            nouns=nouns(name, OTHER_WORDS),
        )

    def _attributes(self, draw: Draw, kind: Kind) -> list[Attribute]:
        """Draw attributes: the first of the list (those of the ware alone) come more often."""
        n, size = draw.pick(self.attribute_counts), len(kind.attributes)
        found: dict[int, Attribute] = {}
        while len(found) < n:
            at = int(draw.random() * draw.random() * size)
            if not kind.rivals[at] & found.keys():
                found[at] = kind.attributes[at]
        out = list(found.values())
        if n > 1 and kind.ware.own and draw.random() < self.own_names:
            out[-1] = draw.pick(kind.ware.own)
        return out

    def _options(self, draw: Draw, kind: Kind) -> dict[str, tuple[str, ...]]:
        n = min(draw.pick(self.option_counts[kind.family.category]), len(kind.options) - 1)
        return {option.name: self._values(draw, kind, option) for option in draw.pick(kind.options[n])}

    def _values(self, draw: Draw, kind: Kind, option: Option) -> tuple[str, ...]:
        pool = self.values[option.pool]
        n = min(int(draw.between(self.value_counts[kind.family.category])), len(pool))
        if option.pool not in self.ordered:
            return tuple(draw.some(pool, n))
        start = int(draw.random() * (len(pool) - n + 1))
        return pool[start : start + n]

    def _fixed(self, draw: Draw, kind: Kind, options: Mapping[str, tuple[str, ...]]) -> str:
        (option,) = draw.pick(kind.options[1])
        return draw.pick(self.values[option.pool]) if option.name not in options and draw.random() < 0.5 else ""

    def _prices(self, draw: Draw, category: str, typical: float) -> tuple[float, ...]:
        at = int((draw.random() + draw.random() + draw.random()) / 3 * len(_RATIOS))
        u, low = draw.random(), self._price(draw, typical * _RATIOS[at])
        if u < self.missing[category]:
            return (100.0,)
        return (low, self._price(draw, low * (1.15 + draw.random()) + 1)) if u > 1 - self.ranges[category] else (low,)

    def _price(self, draw: Draw, dollars: float) -> float:
        return round(max(int(dollars), 1) + draw.pick(self.cents) / 100, 2)

    def _wish(self, draw: Draw, kind: Kind, noun: int, attributes: Sequence[Attribute], options: Mapping[str, tuple[str, ...]]) -> Wish:
        real = [a for a in attributes if a.form != "noun" or draw.random() < 0.3] or list(attributes)
        named = draw.some(real, draw.pick(self.named_counts))
        chosen = [(name, draw.pick(values)) for name, values in options.items() if draw.random() < 0.8]
        text = self.say(draw, kind, noun, named, chosen)
        return Wish(text, tuple(a.name for a in named), tuple(value for _, value in chosen))


class Full(World):
    """The world with the statistics of the official products."""

    values, ordered = POOLS, ORDERED
    attribute_counts = (0,) * 19 + (1,) * 19 + (2,) * 19 + (3,) * 15 + (4,) * 13 + (5,) * 8 + (6,) * 4 + (7,) * 3
    own_names = 0.12
    named_counts = (1, 1, 1, 2, 2, 2, 3)
    option_counts = {
        "fashion": (0,) * 21 + (1,) * 17 + (2,) * 57 + (3,) * 5,
        "beauty": (0,) * 66 + (1,) * 29 + (2,) * 5,
        "electronics": (0,) * 78 + (1,) * 19 + (2,) * 3,
        "garden": (0,) * 51 + (1,) * 34 + (2,) * 15,
        "grocery": (0,) * 75 + (1,) * 19 + (2,) * 6,
    }
    value_counts = {
        "fashion": (2, 3, 4, 5, 5.5, 6, 7, 8, 9, 14, 30),
        "beauty": (2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 10, 22),
        "electronics": (2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 9, 20),
        "garden": (2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 10, 26),
        "grocery": (2, 2.3, 2.6, 3, 3.3, 3.6, 4, 4.5, 5.5, 7, 12),
    }
    ranges = {"fashion": 0.41, "beauty": 0.017, "electronics": 0.005, "garden": 0.014, "grocery": 0.005}
    missing = {"fashion": 0.065, "beauty": 0.055, "electronics": 0.11, "garden": 0.08, "grocery": 0.18}
    cents = (99, 99, 99, 99, 95, 95, 0, 0, 50, 49, 89, 98, 90, 25)

    def __init__(self) -> None:
        brands = {family.wares[0].query: tuple(_brand(f * 131 + k * 97) for k in range(120)) for f, family in enumerate(_FAMILIES)}
        kinds = [_kind(family, ware, brands[family.wares[0].query]) for family in _FAMILIES for ware in family.wares]
        self.kinds = tuple(itertools.chain.from_iterable(_by_share(kinds)))

    def texts(self, draw: Draw, kind: Kind, brand: str, noun: int, attributes: Sequence[Attribute], fixed: str) -> tuple[str, tuple[str, ...], str]:
        """Return name, bullets and description. Nearly every attribute is said in one of them."""
        target = draw.between(DESCRIPTION_LENGTH[kind.family.category])
        in_title: list[Attribute] = []
        in_bullets: list[Attribute] = []
        in_description: list[Attribute] = []
        for a in attributes:
            places = [in_title] if draw.random() < 0.4 and len(in_title) < 2 else []
            places += [in_bullets] if draw.random() < 0.6 else []
            places += [in_description] if target > 40 and draw.random() < 0.45 else []
            for place in places or ([in_bullets] if draw.random() < 0.9 else []):
                place.append(a)
        writer = Writer(draw, kind, brand, noun)
        name = title(draw, kind, brand, noun, in_title, fixed)
        bullets = writer.bullets(in_bullets, bullet_count(draw))
        return name, bullets, writer.description(in_description, target) if target > 40 else ""

    def say(self, draw: Draw, kind: Kind, noun: int, attributes: Sequence[Attribute], options: Sequence[tuple[str, str]]) -> str:
        """Return an instruction; it may call the ware by another of its names."""
        ware = kind.ware
        said = ware.nouns[noun] if draw.random() < 0.65 else draw.pick(ware.nouns)
        return wish(draw, said, ware.who, attributes, options, pair=kind.family.category == "fashion")


class Mini(World):
    """The small world."""

    values, ordered = words_mini.POOLS, ("letters", "shoes", "packs", "feet")
    attribute_counts = (0,) * 3 + (1,) * 5 + (2,) * 7 + (3,) * 5
    own_names = 0.0
    named_counts = (1, 2)
    option_counts = dict.fromkeys(_SHARES, (0, 0, 0, 1, 1, 1, 1, 2, 2, 2))
    value_counts = dict.fromkeys(_SHARES, (2.0, 3.0, 4.0, 5.0))
    ranges = dict.fromkeys(_SHARES, 0.04)
    missing = dict.fromkeys(_SHARES, 0.04)
    cents = (0,)

    def __init__(self) -> None:
        self.kinds = tuple(_kind(family, ware, words_mini.BRANDS) for family in words_mini.FAMILIES for ware in family.wares)

    def texts(self, draw: Draw, kind: Kind, brand: str, noun: int, attributes: Sequence[Attribute], fixed: str) -> tuple[str, tuple[str, ...], str]:
        """Return a name of three to six words, at most one bullet, and a description of some words."""
        return mini_texts(draw, kind, brand, attributes)

    def say(self, draw: Draw, kind: Kind, noun: int, attributes: Sequence[Attribute], options: Sequence[tuple[str, str]]) -> str:
        """Return an instruction of at most 16 words."""
        return short_wish(draw, kind.ware.nouns[noun], attributes, options)


def _brand(number: int) -> str:
    name = BRANDS[number * 61 % len(BRANDS)]
    return name.upper() if number % 4 == 0 else name


def _by_share(kinds: Sequence[Kind]) -> Iterable[tuple[Kind, ...]]:
    """Return each kind as often as it is to come among some 4,000."""
    for category, share in _SHARES.items():
        members = [kind for kind in kinds if kind.family.category == category]
        weights = [weight for weight, _ in zip(itertools.cycle(_POPULAR), members, strict=False)]
        yield from ((kind,) * round(4000 * share * weight / sum(weights)) for kind, weight in zip(members, weights, strict=True))


def _kind(family: Family, ware: Ware, brands: tuple[str, ...]) -> Kind:
    own = {a.name for a in ware.attributes}
    attributes = (*ware.attributes, *(a for a in family.attributes if a.name not in own))
    rivals, options = _rivals(attributes), _option_sets(family, ware)
    return Kind(family, ware, brands, attributes, rivals, options, pools(family, ware, as_title=False), pools(family, ware, as_title=True))


def _rivals(attributes: Sequence[Attribute]) -> tuple[frozenset[int], ...]:
    """Return for each attribute the numbers of those that a product cannot have beside it, its own among them."""
    groups = [frozenset(k for k, a in enumerate(attributes) if a.name in group) for group in _RIVALS]
    return tuple(frozenset({k}).union(*(group for group in groups if k in group)) for k in range(len(attributes)))


def _option_sets(family: Family, ware: Ware) -> tuple[tuple[tuple[Option, ...], ...], ...]:
    """Return for 0, 1, 2, … options the sets of so many with different names, each as often as it is to come."""
    allowed = [option for option in family.options if option.suits(ware.query)]
    out: list[tuple[tuple[Option, ...], ...]] = [((),)]
    for n in range(1, len(allowed) + 1):
        sets = [chosen for chosen in itertools.combinations(allowed, n) if len({o.name for o in chosen}) == n]
        if not sets:
            break
        weights = [prod(o.weight for o in chosen) for chosen in sets]
        often = [max(1, round(60 * weight / sum(weights))) for weight in weights]
        out.append(tuple(itertools.chain.from_iterable([chosen] * k for chosen, k in zip(sets, often, strict=True))))
    return tuple(out)
