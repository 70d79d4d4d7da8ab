"""Writes the titles, bullets and descriptions of generated products from the word tables, at random and as long as wanted."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .words import Attribute, Family, Option, Ware, article, titled
from .words_mini import DESCRIPTIONS as MINI_DESCRIPTIONS
from .words_sentences import ATTRIBUTE, BODY, GENERAL, HEADS, SHORT, TITLE

T = TypeVar("T")
Pools = Mapping[str, tuple[int, tuple[str, ...]]]  # slot → number of its group, phrases

# Lengths in characters: the 0 %, 10 %, …, 100 % points. They follow the official 1,000 products.
TITLE_LENGTH = {
    "fashion": (23, 42, 51, 59, 69, 81, 94, 109, 118, 130, 173),
    "beauty": (23, 56, 76, 93, 109, 123, 138, 152, 167, 181, 202),
    "electronics": (23, 58, 81, 101, 116, 130, 150, 167, 180, 191, 211),
    "garden": (23, 52, 74, 95, 123, 140, 151, 161, 172, 185, 192),
    "grocery": (23, 40, 48, 55, 61, 69, 85, 103, 126, 165, 202),
}
DESCRIPTION_LENGTH = {
    "fashion": (0, 0, 0, 0, 210, 320, 450, 620, 850, 1100, 1360),
    "beauty": (0, 0, 0, 0, 90, 210, 340, 470, 680, 940, 1360),
    "electronics": (0, 0, 0, 60, 250, 440, 530, 670, 890, 1150, 1600),
    "garden": (0, 0, 0, 50, 280, 420, 530, 680, 850, 1060, 1440),
    "grocery": (0, 0, 0, 0, 80, 160, 230, 320, 470, 760, 1360),
}
BULLET_LENGTH = (8, 24, 45, 69, 97, 127, 164, 202, 248, 310, 480)
BULLETS = (1, 1, 2, 3, 4, 4, *(5,) * 13, 6, 7, 7)  # how many

_STEPS = (1, 5, 7, 11, 13, 17, 19, 23)  # 1 and primes: a step that does not divide the size has no divisor in common with it
_NAME = re.compile(r"(?<![\w'-])[^\W\d_][\w'-]*")


class Draw(random.Random):
    """Random numbers of one product. Only `random()` is used: the one method whose numbers Python promises never to change."""

    def pick(self, pool: Sequence[T]) -> T:
        """Return one of the pool."""
        return pool[int(self.random() * len(pool))]

    def some(self, pool: Sequence[T], n: int) -> list[T]:
        """Return n different ones of the pool (all where there are not so many), in random order."""
        size = len(pool)
        start, step = self.walk(size)
        return [pool[(start + k * step) % size] for k in range(min(n, size))]

    def walk(self, size: int) -> tuple[int, int]:
        """Return a start and a step that lead through all of 0 … size − 1, modulo size."""
        step = self.pick(_STEPS)
        while size % step == 0 and step > 1:
            step = self.pick(_STEPS)
        return int(self.random() * size), step

    def between(self, points: Sequence[float]) -> float:
        """Return a number whose distribution has these equally spaced quantiles."""
        at = self.random() * (len(points) - 1)
        k = int(at)
        return points[k] + (at - k) * (points[k + 1] - points[k])


class Slots(dict[str, str]):
    """What the slots of a sentence are filled with: what was set, else a phrase from the pool of that name, never the same twice running."""

    def __init__(self, pools: Pools, draw: Draw, **given: str) -> None:
        super().__init__(given)
        self._pools, self._random, self._last = pools, draw.random, [int(draw.random() * 5040)] * 8

    def hold(self, slot: str, at: int) -> None:
        """Fill a slot with one phrase of its pool from now on."""
        group, pool = self._pools[slot]
        self[slot], self._last[group] = pool[at], at

    def __missing__(self, slot: str) -> str:
        group, pool = self._pools[slot]
        self._last[group] = at = (self._last[group] + 1 + int(self._random() * (len(pool) - 1))) % len(pool)
        return pool[at]


@dataclass(frozen=True, slots=True)
class Kind:
    """A ware with all that its products are made from."""

    family: Family
    ware: Ware
    brands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    rivals: tuple[frozenset[int], ...]  # for each attribute those, by number, that a product cannot have beside it, itself among them
    options: tuple[tuple[tuple[Option, ...], ...], ...]  # by number of options: sets of options, as often as they are to come
    pools: Pools
    titles: Pools


def pools(family: Family, ware: Ware, as_title: bool) -> Pools:
    """Return the pools of a ware's slots. `as_title`: as titles write them, without an article."""
    say = _short_titled if as_title else str
    out: dict[str, tuple[int, tuple[str, ...]]] = {}
    for group, (slot, phrases) in enumerate(family.pools.items()):
        out[slot] = (group, tuple(map(say, phrases)))
    out["a look"] = (out["look"][0], tuple(f"{article(phrase)} {phrase}" for phrase in family.pools["look"]))
    out["noun"] = out["noun2"] = (len(out), tuple(say(n.text) for n in ware.nouns))
    return out


def _short_titled(phrase: str) -> str:
    rest = phrase.removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return f"the {titled(rest)}" if phrase.startswith("the ") else titled(rest)


def nouns(title: str, other: frozenset[str]) -> tuple[str, ...]:
    """Return the lower-case nouns of a title, in its order, with repeats: its words but those of `other`."""
    return tuple([word for word in _NAME.findall(title.lower().replace("'s", "")) if word not in other])


def title(draw: Draw, kind: Kind, brand: str, noun: int, named: Sequence[Attribute], fixed: str) -> str:
    """Return a title with these attributes in it. `noun`: which name of the ware; `fixed`: the one colour or size that the product has, or ""."""
    slots = Slots(kind.titles, draw, brand=brand)
    slots.hold("noun", noun)
    target = draw.between(TITLE_LENGTH[kind.family.category]) - 14  # the last piece goes over it by half its length
    before = [titled(a.lead) for a in named if a.form not in ("for", "noun")]
    words = [brand, *before[:1]]
    if target > 35:
        words.append(slots["look"])
    if kind.ware.who and draw.random() < 0.6:
        words.append(titled(kind.ware.who) + "'s")
    if target > 45:
        words.append(slots["stuff"])
    words.append(slots["noun"])
    out = " ".join(words)
    pieces = [f"with {lead}" for lead in before[1:]] + [f"for {titled(a.name)}" for a in named if a.form == "for"]
    pieces += [titled(a.name) for a in named if a.form == "noun"]
    join = draw.pick((", ", ", ", " - ", " | ", " "))
    for piece in pieces:
        out += (" " if piece.startswith(("with ", "for ")) else join) + piece
    if len(out) < target:
        for template in draw.some(TITLE[kind.family.category], 8):
            piece = template.format_map(slots)
            out += (" " if piece.startswith(("with ", "for ")) and draw.random() < 0.7 else join) + piece
            if len(out) >= target:
                break
    return out + (f" ({titled(fixed)})" if join == " " else f", {titled(fixed)}") if fixed else out


class Writer:
    """Writes the bullets and the description of one product; no sentence comes twice until all were used."""

    def __init__(self, draw: Draw, kind: Kind, brand: str, noun: int) -> None:
        self._draw, self._category = draw, kind.family.category
        self._slots = Slots(kind.pools, draw, brand=brand)
        self._slots.hold("noun", noun)
        self._body = SENTENCES[self._category]
        self._next, self._step = draw.walk(len(self._body))
        self._said = int(draw.random() * 100)

    def description(self, said: Sequence[Attribute], target: float) -> str:
        """Return a description of about `target` characters that says these attributes."""
        sentences = self._sentences([self._about(a) for a in said], target)
        return " ".join(self._draw.some(sentences, len(sentences)) if said else sentences)

    def bullets(self, said: Sequence[Attribute], n: int) -> tuple[str, ...]:
        """Return n bullets that say these attributes."""
        draw = self._draw
        mine: list[list[Attribute]] = [[] for _ in range(n)]
        for a in said:
            mine[int(draw.random() * n)].append(a)
        style = draw.pick(("{}", "{}", "{}", "{}: ", "{}: ", "{} – ", "【{}】"))
        heads = draw.some(HEADS[self._category], n) if style != "{}" else []
        return tuple(self._bullet(about, style.format(heads[i % len(heads)]) if heads else "", i == 0) for i, about in enumerate(mine))

    def _bullet(self, about: list[Attribute], head: str, first: bool) -> str:
        target = self._draw.between(BULLET_LENGTH) * (0.7 if first else 1)
        if target < 60 and len(about) < 2:
            text = PHRASE[about[0].form] + about[0].tail if about else self._draw.pick(SHORT[self._category]).format_map(self._slots)
            return text[0].upper() + text[1:]
        return (head.upper() if head.endswith(": ") else head) + " ".join(self._sentences([self._about(a) for a in about], target - len(head)))

    def _sentences(self, start: list[str], target: float) -> list[str]:
        length = sum(map(len, start))
        while length < target - 55 or not start:
            sentence = self._body[self._next % len(self._body)].format_map(self._slots)
            self._next += self._step
            start.append(sentence[0].upper() + sentence[1:])
            length += len(sentence) + 1
        return start

    def _about(self, a: Attribute) -> str:
        self._slots["tail"] = a.tail
        templates = ATTRIBUTE[a.form]
        self._said += 1
        sentence = templates[self._said % len(templates)].format_map(self._slots)
        return sentence[0].upper() + sentence[1:]


def bullet_count(draw: Draw) -> int:
    """Return how many bullets a product has."""
    return draw.pick(BULLETS)


def mini_texts(draw: Draw, kind: Kind, brand: str, attributes: Sequence[Attribute]) -> tuple[str, tuple[str, ...], str]:
    """Return a name of three to six words, at most one bullet, and a description of some words; each attribute is said in one of them."""
    slots = Slots(kind.pools, draw)
    shown = [a for a in attributes[:1] if draw.random() < 0.75]
    words = [brand, *(a.name for a in shown)] if shown else [brand, slots[draw.pick(("look", "stuff"))]]
    name = titled(" ".join((*words, slots["noun"])))
    rest = [PHRASE[a.form] + a.tail for a in attributes if a not in shown]
    inside = rest[-1:] if draw.random() < 0.35 else []
    bullet = " and ".join(rest[: len(rest) - len(inside)])
    about = draw.pick(MINI_DESCRIPTIONS).format_map(slots)
    return name, (bullet,) if bullet else (), ", ".join((about, *inside))


PHRASE = {"is": "", "has": "with ", "of": "made of ", "for": "for ", "noun": ""}
SENTENCES = {category: (*body, *GENERAL) for category, body in BODY.items()}
