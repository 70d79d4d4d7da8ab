"""Goals: what each episode asks for. Prices and ceilings are drawn from a seed alone, or read from a recorded run of the original."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from agentgym.cache import atomic_folder
from agentgym.errors import DataError

from .catalogue import Catalogue
from .types import Goal, Product

Set = Literal["synthetic", "human", "generated"]
NO_CEILING = 1_000_000
_CEILINGS = range(10, 1000, 10)  # dollars
_ORDER = 233  # the seed of the original's shuffle
_KEPT = ("costs", "rows", "which", "upper")  # what is drawn once and kept beside the catalogue


def price_draw(catalogue: Catalogue, seed: int) -> tuple[np.ndarray, random.Random]:
    """Return what each product costs [products], and the generator as it stands then.

    One uniform draw within each range, in the order of the catalogue: with seed 0 what the original draws after `random.seed(0)`.
    """
    rng = random.Random(seed)
    costs = np.array(catalogue.low)
    for row in np.flatnonzero(catalogue.low != catalogue.high):
        costs[row] = rng.uniform(float(catalogue.low[row]), float(catalogue.high[row]))
    return costs, rng


def ceiling(price: float, rng: random.Random) -> int:
    """Return a ceiling: the larger of two of the first four multiples of ten above the price; NO_CEILING where there are not two below 1,000."""
    above = [c for c in _CEILINGS if c > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_CEILING


def price_clause(upper: float) -> str:
    """Return the words that say a ceiling, "" where there is none."""
    return "" if upper >= NO_CEILING else f", and price lower than {upper:.2f} dollars"


class Drawn:
    """The goals of a set, drawn for a catalogue: a few numbers per goal, the goal itself is made when it is asked for.

    rows, which, upper, weights [goals]  product, combination or instruction of it, ceiling, weight; in the order of the original's shuffle
    costs [products]                     what each product costs
    """

    def __init__(self, catalogue: Catalogue, kind: Set, seed: int = 0) -> None:
        self.catalogue, self.kind = catalogue, kind
        kept = catalogue.folder / f"goals-{kind}-{seed}"
        try:
            drawn = [np.load(kept / f"{name}.npy", mmap_mode="r") for name in _KEPT]
        except (OSError, ValueError):
            drawn = self._draw(seed)
            with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
                if not kept.exists():
                    with atomic_folder(kept) as new:
                        for name, values in zip(_KEPT, drawn, strict=True):
                            np.save(new / f"{name}.npy", values)
        self.costs, self.rows, self.which, self.upper = map(np.asarray, drawn)
        self.goal = functools.lru_cache(maxsize=1024)(self._goal)

    def _draw(self, seed: int) -> list[np.ndarray]:
        costs, rng = price_draw(self.catalogue, seed)
        self.costs = costs
        rows, which, upper = self._combinations(rng) if self.kind == "synthetic" else self._wishes(rng)
        order = list(range(len(rows)))
        random.Random(_ORDER).shuffle(order)
        return [costs, rows[order], which[order], upper[order]]

    def _combinations(self, rng: random.Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return every combination of options of each product with a synthetic instruction; one ceiling a product."""
        found, times = self.catalogue.templates, self.catalogue.combinations
        upper = np.array([ceiling(float(self.costs[row]), rng) for row in found])
        which = np.concatenate([np.arange(n) for n in times]) if len(times) else np.zeros(0, np.int64)
        return np.repeat(found, times), which, np.repeat(upper, times)

    def _wishes(self, rng: random.Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return every written instruction; one ceiling each."""
        rows = self.catalogue.wishes
        upper = np.array([ceiling(float(self.costs[row]), rng) for row in rows])
        first = np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, bool)
        starts = np.flatnonzero(first)
        which = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
        return rows, which, upper

    def __len__(self) -> int:
        return len(self.rows)

    def asin_bucket(self) -> np.ndarray:
        """Return the bucket of each goal's product [goals]."""
        return self.catalogue.bucket[self.rows]

    def cost(self, row: int) -> float:
        """Return what the product of a row costs, in dollars."""
        return float(self.costs[row])

    @functools.cached_property
    def _counts(self) -> Counter[str]:
        """How many goals ask for each attribute."""
        counts: Counter[str] = Counter()
        for row, times in zip(self.catalogue.templates, self.catalogue.combinations, strict=True):
            for attribute in self.catalogue._product(int(row)).template_attributes:
                counts[attribute] += int(times)
        return counts

    def _weight(self, attributes: Sequence[str]) -> float:
        return sum(1.0 / self._counts[a] for a in attributes) / len(attributes) if self.kind == "synthetic" else 1.0

    def _goal(self, i: int) -> Goal:
        """Return goal `i`."""
        product = self.catalogue.product(int(self.rows[i]))
        number, upper = int(self.which[i]), float(self.upper[i])
        if self.kind == "synthetic":
            options: Any = combination(product, number)
            said = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text, attributes = f"{product.template}{' with ' if said else ''}{said}", product.template_attributes
        else:
            wish = product.wishes[number]
            text, attributes, options = wish.text, wish.attributes, wish.options
        return Goal(
            i,
            product.asin,
            product.category,
            product.query,
            product.name,
            product.product_category,
            text + price_clause(upper),
            attributes,
            options,
            upper,
            self._weight(attributes),
        )

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """Return the weight of each goal [goals], with which the original draws it."""
        if self.kind != "synthetic":
            return np.ones(len(self))
        by_row = {int(row): self._weight(self.catalogue._product(int(row)).template_attributes) for row in self.catalogue.templates}
        return np.array([by_row[int(row)] for row in self.rows])


def combination(product: Product, number: int) -> dict[str, str]:
    """Return the `number`-th combination of options: names in alphabetical order, the last one varies fastest."""
    names = sorted(product.options)
    chosen = {}
    for name in reversed(names):
        number, at = divmod(number, len(product.options[name]))
        chosen[name] = product.options[name][at]
    return {name: chosen[name] for name in names}


class Recorded:
    """The goals of a recorded run of the original: `goals.json.gz` and `prices.json` of a folder."""

    def __init__(self, catalogue: Catalogue, kind: Set, folder: Path) -> None:
        """Read the files. Raises DataError that says which of them, or which goal, is not as it should be."""
        self.catalogue, self.kind = catalogue, kind
        goals, self._prices = _recording(folder)
        if kind not in goals:
            raise DataError(f"webshop: {folder / 'goals.json.gz'} has no {kind!r} goals; it has {', '.join(goals)}")
        try:
            self.goals = [_recorded_goal(g) for g in goals[kind]]
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"webshop: a {kind} goal in {folder / 'goals.json.gz'} is not complete ({type(e).__name__}: {e})") from e
        missing = next((g.asin for g in self.goals if catalogue.row(g.asin) is None), None)
        if missing is not None:
            raise DataError(f"webshop: the recorded goals in {folder} ask for {missing}, which is not among the {len(catalogue):,} products")

    def __len__(self) -> int:
        return len(self.goals)

    def goal(self, i: int) -> Goal:
        """Return goal `i`."""
        return self.goals[i]

    def asin_bucket(self) -> np.ndarray:
        """Return the bucket of each goal's product [goals]."""
        return np.array([self.catalogue.bucket[self.catalogue.row(g.asin)] for g in self.goals])

    def cost(self, row: int) -> float:
        """Return what the product of a row costs, in dollars."""
        asin = self.catalogue.asins[row].decode()
        if asin not in self._prices:
            raise DataError(f"webshop: prices.json of the recording has no price for {asin}")
        return self._prices[asin]

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """Return the weight of each goal [goals]."""
        return np.array([g.weight for g in self.goals])


Goals = Drawn | Recorded


@functools.lru_cache(maxsize=4)
def _recording(folder: Path) -> tuple[dict[str, list[Any]], dict[str, float]]:
    try:
        with gzip.open(folder / "goals.json.gz", "rt", encoding="utf-8") as f:
            goals = json.load(f)
        prices = json.loads((folder / "prices.json").read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise DataError(f"webshop: the recorded run in {folder} cannot be read ({e}); it holds goals.json.gz and prices.json") from e
    return goals, prices


def _recorded_goal(g: dict[str, Any]) -> Goal:
    options = g["goal_options"]
    return Goal(
        g["goal_index"],
        g["asin"],
        g["category"],
        g["query"],
        g["name"],
        g["product_category"],
        g["instruction_text"],
        tuple(g["attributes"]),
        options if isinstance(options, dict) else tuple(options),
        g["price_upper"],
        g.get("weight", 1.0),
    )
