"""The questions of the factbook: chains of attributes, put into words, and the side of the split that each belongs to.

A chain names attributes in the order in which they are used: ("capital",) asks for a capital; ("anthem", "country") for the country
with an anthem; ("anthem", "capital") for its capital; ("border", "capital") and ("anthem", "border", "capital") for a neighbour's.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator

from agentgym.answers import normalise

from .attributes import ATTRIBUTES, BORDER
from .data import Question
from .facts import Country, countries, fact_page
from .terms import STOP_WORDS, words

SPLITS = ("train", "test")
TEST_SHARE = 0.25  # of the countries
MOST_SHARED = 3  # an answer that is right for more countries ("Pacific Ocean") could be guessed without a search
_NO_COUNTRIES = frozenset({"xx", "ee"})  # the world and the European Union: documents, but no questions


@functools.cache
def all_questions() -> dict[str, tuple[Question, ...]]:
    """Return split → its questions, in an order that a hash has shuffled."""
    sides = _sides()
    found: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for country in countries().values():
        if country.id not in _NO_COUNTRIES:
            found[sides[country.id]] += _about(country, sides[country.id])
    trained = {normalise(answer) for question in found["train"] for answer in question.answers}
    found["test"] = [q for q in found["test"] if trained.isdisjoint(map(normalise, q.answers))]
    return {split: tuple(sorted(qs, key=lambda q: hashlib.sha256(q.id.encode()).digest())) for split, qs in found.items()}


def _about(country: Country, split: str) -> Iterator[Question]:
    """Yield all questions whose chain starts at `country`."""
    keys = [name for name in country.facts if _is_key(country, name)]
    neighbour = _neighbour(country)
    chains: list[tuple[tuple[str, ...], Country]] = [((name,), country) for name in country.facts]
    chains += [((key, "country"), country) for key in keys]
    chains += [((key, name), country) for key in keys for name in country.facts if name != key]
    if neighbour is not None:
        chains += [((*start, "border", name), neighbour) for start in [(), *((k,) for k in keys)] for name in neighbour.facts if name != "border"]
    for chain, last in chains:
        question = _question(country, last, chain, split)
        if question is not None:
            yield question


def _question(country: Country, last: Country, chain: tuple[str, ...], split: str) -> Question | None:
    """Return the question of a chain of attributes, or None where its answer is too common or stands in the question."""
    final = chain[-1]
    answers = (country.name, *country.aliases) if final == "country" else last.facts[final].answers
    if final != "country" and _shared()[final, normalise(answers[0])] > MOST_SHARED:
        return None
    hops = _hops(country, last, chain)
    id = f"factbook/{len(hops)}hop/{country.slug}/{'-'.join(chain)}"
    text = _wording(id, country, chain)
    said = _spaced(text)
    bridges = [_spaced(hop["answer"]) for hop in hops[:-1]]
    if any(_spaced(answer) in said for answer in answers) or any(bridge in said for bridge in bridges):
        return None  # "Gulf of Guinea" says where to look
    if not normalise(answers[0]) or any(_spaced(answer) in bridges for answer in answers):
        return None  # where a capital is called like its country, the bridge would be the answer
    entities = tuple(dict.fromkeys((country.id, last.id)))
    return Question(id, text, answers, "factbook", split, {"hops": len(hops), "chain": hops, "entities": entities})


def _hops(country: Country, last: Country, chain: tuple[str, ...]) -> tuple[dict[str, str], ...]:
    """Return what each search looks for, where it is found, and what it finds."""
    hops: list[dict[str, str]] = []
    asked = list(chain)
    if _is_inverse(chain):
        name = asked.pop(0)
        hops.append(_hop(country, name, country.facts[name].value, "title", country.name))
        asked = [name for name in asked if name != "country"]
    for name, owner in zip(asked, [country, last][-len(asked) :], strict=False):
        hops.append(_hop(owner, name, "{}" if hops else country.name, "value", owner.facts[name].value))
    return tuple(hops)


def _is_inverse(chain: tuple[str, ...]) -> bool:
    """Return whether the first attribute describes the country (instead of being asked for, or leading to a neighbour)."""
    return len(chain) > 1 and chain[0] != "border"


def _hop(country: Country, name: str, key: str, read: str, answer: str) -> dict[str, str]:
    attribute = ATTRIBUTES[name]
    query = f"{attribute.label} of {key}" if read == "value" else f"{attribute.label} {key}"
    return {"query": query, "label": attribute.label, "read": read, "document": fact_page(country, attribute), "answer": answer}


def _wording(id: str, country: Country, chain: tuple[str, ...]) -> str:
    """Return the question: one of the wordings of each attribute, picked by the id."""
    who, asked = country.spoken, list(chain)
    if _is_inverse(chain):
        name = asked.pop(0)
        value = country.facts[name].value
        if asked == ["country"]:
            return _capitalised(_pick(ATTRIBUTES[name].which, id).format(value))
        who = _pick(ATTRIBUTES[name].describe, id).format(value)
    if len(asked) > 1:
        who = _pick(BORDER, f"{id} border").format(who)
    return _pick(ATTRIBUTES[asked[-1]].ask, f"{id} ask").format(who)


def _pick(wordings: tuple[str, ...], id: str) -> str:
    return wordings[zlib.crc32(id.encode()) % len(wordings)]


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- what is unique, what leaks, which side ------------------------------------------------------------------------


def _is_key(country: Country, name: str) -> bool:
    """Return whether the value of an attribute tells this country from all others, without telling its name."""
    if name == "border":
        return False
    value = country.facts[name].value
    if not set(words(value)) - STOP_WORDS:  # no search can find `.no` or `.is`
        return False
    own = {word[:4] for word in words(country.name) if len(word) >= 4}
    if own & {word[:4] for word in words(value)}:  # "Algerian dinars": the country is said already
        return False
    key = _spaced(value)
    elsewhere = any(key in text for id, text in _texts(name).items() if id != country.id)
    return not elsewhere and _shared()[name, normalise(value)] == 1


@functools.cache
def _texts(name: str) -> dict[str, str]:
    """Return country → the words of the whole text of an attribute, also where it is no single fact."""
    (section, group), field = ATTRIBUTES[name].group, ATTRIBUTES[name].field
    return {c.id: _spaced(c.sections.get(section, {}).get(group, {}).get(field, "")) for c in countries().values()}


@functools.cache
def _shared() -> Counter[tuple[str, str]]:
    """Return (attribute, normalised value) → how many countries have it."""
    return Counter((name, normalise(fact.value)) for country in countries().values() for name, fact in country.facts.items())


@functools.lru_cache(maxsize=1 << 14)
def _spaced(text: str) -> str:
    """Return the words of `text` with a blank on either side: one text is in another where its words are."""
    return f" {normalise(text)} "


def _neighbour(country: Country) -> Country | None:
    """Return the country with the longest border with `country`."""
    fact = country.facts.get("border")
    return _by_name()[fact.value] if fact is not None else None


@functools.cache
def _by_name() -> dict[str, Country]:
    return {country.name: country for country in countries().values()}


@functools.cache
def _sides() -> dict[str, str]:
    """Return country → split: groups that hang together by longest borders go to one side, in the order of a hash."""
    group = {id: {id} for id in countries()}
    for country in countries().values():
        neighbour = _neighbour(country)
        if neighbour is not None and group[country.id] is not group[neighbour.id]:
            group[country.id] |= group[neighbour.id]
            for id in group[neighbour.id]:
                group[id] = group[country.id]
    sides: dict[str, str] = {}
    for alone in (False, True):  # islands apart, so that both splits have their share of both
        groups = {min(ids): ids for ids in group.values() if (len(ids) == 1) == alone}
        room = TEST_SHARE * sum(map(len, groups.values()))
        for _, ids in sorted(groups.items(), key=lambda item: hashlib.sha256(f"side {item[0]}".encode()).digest()):
            side = "test" if len(ids) <= room else "train"
            room -= len(ids) if side == "test" else 0
            sides |= dict.fromkeys(sorted(ids), side)
    return sides
