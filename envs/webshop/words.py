"""How the word tables of the generated catalogue are written down.

A family is a group of wares that are described with the same words ("tables": console tables, desks, …). All its words are comma-separated strings.
An attribute starts with the word that says how it is used in a sentence:

    is machine washable      it is machine washable
    easy clean               it is easy to clean (the attribute is "easy clean")
    has a rubber sole        it comes with a rubber sole (the attribute is "rubber sole")
    has long sleeve(s)       it comes with long sleeves (the attribute is "long sleeve")
    of solid wood            it is made of solid wood
    for the living room      it is for the living room (the attribute is "living room")

A line of wares is `query | path below the root | names | typical price`; the price may be left out. A name that starts with ~ is a mass noun
("~tea": some tea). Lines below it that start with + have attributes of this ware alone. An option is `name:pool:weight`, and `:word/word` after it
names the wares (by a part of their query) that can have it, `:!word/word` those that cannot.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

SMALL_WORDS = frozenset("a an and at by for from in of on or per the to with".split())
RIVALS = (  # of each line a product has one attribute at most
    "long sleeve, short sleeve, puff sleeve, bat wing sleeve, sleeveless, spaghetti strap",
    "slim fit, loose fit, classic fit, relaxed fit, regular fit",
    "crew neck, v neck, high neck, square neck",
    "straight leg, wide leg, boot cut",
    "high waist, low rise",
    "machine washable, dry clean only",
    "hand washable, dry clean only",
    "knee length, floor length",
    "solid wood, engineered wood, reclaimed wood",
    "glass top, marble top, lift top, tilting top",
    "open toe, closed toe",
    "lace up closure, slip on, hook closure",
    "high heel, low heel, block heel, platform sole",
    "matte finish, glossy finish",
    "human hair, synthetic hair",
    "underwire, wire free",
    "genuine leather, faux leather, bonded leather, velvet fabric",
    "no added sugar, natural flavors",
    "plug in, battery operated",
    "mid century modern, contemporary",
    "high back, low back",
    "solid wood legs, metal legs",
    "lightly salted, unsalted, salt free",
    "organic cotton, cotton modal, bamboo viscose, soft satin",
    "one button closure, two button closure",
    "floral scent, woody scent, fresh scent, fragrance free",
)
_FIRST = re.compile(r"[^\W\d_]")
_AN = re.compile(r"(?!uni|us[bde]|eu|one\b|uk)[aeiou]|8|11\b|18\b|x{1,2}-|hdmi|led\b|fm\b|msg|sls|rg6|mdf|hour")


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: what the shop calls it, and how it is said: `lead` before a noun, `tail` after is, with, made of, for (`form`)."""

    name: str
    form: str  # is, has, of, for; noun: a name of the ware itself
    lead: str
    tail: str


@dataclass(frozen=True, slots=True)
class Noun:
    """A name of a ware: `number` is one, many ("jeans") or mass ("tea")."""

    text: str
    number: str


@dataclass(frozen=True, slots=True)
class Ware:
    """A kind of product: all products of one query."""

    query: str
    path: str
    nouns: tuple[Noun, ...]
    price: float  # dollars, typical
    attributes: tuple[Attribute, ...]  # that only this ware of its family can have
    own: tuple[Attribute, ...]  # names of two words or more, as attributes
    who: str  # "men", "women", "kids" or ""


@dataclass(frozen=True, slots=True)
class Option:
    """A name of an option, the pool its values come from, and how often it is the one that a product has. `only`: see the top of this file."""

    name: str
    pool: str
    weight: float
    only: str = ""

    def suits(self, query: str) -> bool:
        """Return whether products of this query can have it."""
        words = self.only.removeprefix("!").split("/")
        return not self.only or any(word in query for word in words) != self.only.startswith("!")


@dataclass(frozen=True, slots=True)
class Family:
    """Wares with the words they share. `pools`: look, stuff, part, extra, use → phrases."""

    category: str
    wares: tuple[Ware, ...]
    options: tuple[Option, ...]
    attributes: tuple[Attribute, ...]
    pools: Mapping[str, tuple[str, ...]]


def listed(text: str) -> tuple[str, ...]:
    """Return the phrases of a comma-separated string."""
    return tuple(part for part in (" ".join(part.split()) for part in text.split(",")) if part)


@functools.lru_cache(maxsize=1 << 14)
def titled(phrase: str) -> str:
    """Return a phrase as titles write it: "pack of 2" → "Pack of 2"."""
    words = phrase.split(" ")
    return " ".join(word if word in SMALL_WORDS and i else _FIRST.sub(lambda m: m[0].upper(), word, 1) for i, word in enumerate(words))


def article(phrase: str) -> str:
    """Return "a" or "an", whichever goes before the phrase."""
    return "an" if _AN.match(phrase.lower()) else "a"


def attribute(text: str) -> Attribute:
    """Parse one attribute of a table."""
    form, _, phrase = text.partition(" ")
    if form == "easy":
        return Attribute(f"easy {phrase}", "is", f"easy to {phrase}", f"easy to {phrase}")
    if form not in ("is", "has", "of", "for"):
        raise ValueError(f"attribute {text!r}: must start with is, easy, has, of or for")
    tail = phrase.replace("(s)", "s")
    name = phrase.replace("(s)", "")
    for article in ("a ", "an ", "the "):
        name = name.removeprefix(article)
    return Attribute(name, form, name, tail)


def noun(text: str) -> Noun:
    """Parse one name of a ware."""
    if text.startswith("~"):
        return Noun(text[1:], "mass")
    many = text.endswith("s") and not text.endswith(("ss", "lens", "canvas", "chess"))
    return Noun(text, "many" if many else "one")


def _wares(table: str, root: str, price: float) -> tuple[Ware, ...]:
    """Parse the lines of a table of wares; `price` holds where a line gives none."""
    rows: list[tuple[str, list[str]]] = []
    for line in table.strip().splitlines():
        if line.strip().startswith("+"):
            rows[-1][1].extend(listed(line.strip().removeprefix("+")))
        else:
            rows.append((line, []))
    return tuple(_ware(line, extras, root, price) for line, extras in rows)


def _ware(line: str, extras: list[str], root: str, price: float) -> Ware:
    query, path, names, *own_price = (part.strip() for part in line.split("|"))
    nouns = tuple(noun(name) for name in listed(names))
    own = tuple(Attribute(n.text, "noun", n.text, n.text) for n in nouns if " " in n.text)
    who = next((who for who, mark in (("women", "women's "), ("men", "men's "), ("kids", "kids' ")) if query.startswith(mark)), "")
    return Ware(query, f"{root} › {path}", nouns, float(own_price[0]) if own_price else price, tuple(map(attribute, extras)), own, who)


def family(
    category: str, root: str, *, price: float, options: str, attributes: str, look: str, stuff: str, part: str, extra: str, use: str, wares: str
) -> Family:
    """Parse a family; the top of this file says how it is written."""
    entries = [entry.split(":") for entry in listed(options)]
    return Family(
        category,
        _wares(wares, root, price),
        tuple(Option(name, pool, float(weight), *only) for name, pool, weight, *only in entries),
        tuple(map(attribute, listed(attributes))),
        {"look": listed(look), "stuff": listed(stuff), "part": listed(part), "extra": listed(extra), "use": listed(use)},
    )
