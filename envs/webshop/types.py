"""What the shop is made of: products, goals, places in the shop, what a purchase earned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["index", "results", "item", "sub", "done"]
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")


@dataclass(frozen=True, slots=True)
class Wish:
    """A shopper's instruction for one product, and what of the product it asks for (before prices are known)."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()  # values


@dataclass(frozen=True, slots=True)
class Product:
    """One product, as the shop shows and scores it.

    prices      one or two dollar amounts: a range is bought at a price within it
    options     name → values, both lower-case
    template    the synthetic instruction (every combination of options makes one goal of it) and `template_attributes`; None: it makes none
    wishes      instructions written for it
    nouns       the nouns of its name where they are known by construction (generated products), else None
    """

    asin: str
    name: str
    category: str = ""
    query: str = ""
    product_category: str = ""
    prices: tuple[float, ...] = (100.0,)
    description: str = ""
    bullets: tuple[str, ...] = ()
    image: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: tuple[str, ...] = ("DUMMY_ATTR",)
    template: str | None = None
    template_attributes: tuple[str, ...] = ()
    wishes: tuple[Wish, ...] = ()
    nouns: tuple[str, ...] | None = None

    @property
    def price_text(self) -> str:
        """Return the price as pages show it."""
        return " to ".join(f"${p}" for p in self.prices)

    @property
    def text(self) -> str:
        """Return what is indexed: name, description, first bullet, options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.name, self.description, self.bullets[0] if self.bullets else "", options)).lower()


@dataclass(frozen=True, slots=True)
class Goal:
    """What one episode is about. `options`: name → value for synthetic goals, a tuple of values for all others."""

    index: int
    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    price_upper: float  # 1,000,000: no ceiling
    weight: float = 1.0

    @property
    def wanted(self) -> list[Any]:
        """Return the options that are asked for, each as the reward compares it: (name, value) or value."""
        return list(self.options.items()) if isinstance(self.options, Mapping) else list(self.options)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session stands: all that a page's address says.

    options  (name, value) of what was chosen, in the order of the first choice of each name
    """

    kind: Kind = "index"
    keywords: tuple[str, ...] = ()
    page: int = 1
    asin: str = ""
    sub: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A page with all that it shows. `shown`: products of a page of results; `product`: that of an item page, its sub-pages, and the last page."""

    place: Place
    instruction: str
    total: int = 0
    shown: tuple[Product, ...] = ()
    product: Product | None = None
    visited: frozenset[str] = frozenset()
    reward: float = 0.0
