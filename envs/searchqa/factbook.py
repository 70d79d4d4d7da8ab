"""The embedded corpus and its questions of one, two and three hops, made from the CIA World Factbook (see `facts.py`, `chains.py`).

One hop asks about a country. Two hops describe the country by something that only it has, or ask about its neighbour. Three
hops do both. Every step is unique in the whole data, and what it needs stands in one line of one document whose title names the
country: `Highest point of Malaysia: Gunung Kinabalu (4,095 m)` in "Malaysia: Elevation". The longest border is worked out here:
`Longest border of Malaysia: Indonesia (1,881 km)`.

Held out means: countries are dealt to train and test with their longest borders, so that no chain leaves its side, and no right
answer of a test question is a right answer in training.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agentgym.errors import TaskError, did_you_mean

from .attributes import ATTRIBUTES, Attribute, slug
from .chains import SPLITS, all_questions
from .corpus import Document
from .data import Question
from .facts import Country, countries, fact_page

HOPS = (1, 2, 3)
PASSAGE = 100  # words of a document, as in Search-R1's corpus


# --- documents -----------------------------------------------------------------------------------------------------


def documents(*, words: int | None = None, asked: bool = False) -> list[Document]:
    """Return the corpus: short documents of the facts that are asked for, and passages of everything else.

    `words` cuts the text of each document, its title not counted (None: passages of 100 words), but never a line that answers
    a question; words=1 leaves just these lines. `asked=True` leaves out the passages that answer no question. Ids stay the same.
    Raises TaskError for words < 1, DataError where the package is missing.
    """
    if words is not None and words < 1:
        raise TaskError(f"documents(words={words}): expected at least 1, or None for passages of {PASSAGE} words")
    return [_document(page, words) for country in countries().values() for page in _pages(country) if page.facts or not asked]


class _Page(NamedTuple):
    """A document in the making: lines that answer questions, and the other lines."""

    id: str
    title: str
    facts: list[str]
    lines: list[str]


def _document(page: _Page, words: int | None) -> Document:
    kept = sum(len(line.split()) for line in page.facts)
    lines = page.facts + _cut(page.lines, (words or PASSAGE) - kept)
    return Document(page.id, "\n".join([f'"{page.title}"', *lines]))


def _cut(lines: list[str], words: int) -> list[str]:
    out = []
    for line in lines:
        parts = line.split()[: max(0, words)]
        words -= len(parts)
        if parts:
            out.append(" ".join(parts))
    return out


def _pages(country: Country) -> Iterator[_Page]:
    """Yield the pages of a country: one for each field group with a fact; the rest of each section in passages."""
    seen = set()
    for section, groups in country.sections.items():
        rest = []
        for group, fields in groups.items():
            if (group, tuple(fields.items())) in seen:  # a few groups stand in two sections
                continue
            seen.add((group, tuple(fields.items())))
            asked = [ATTRIBUTES[name] for name in country.facts if ATTRIBUTES[name].group == (section, group)]
            # The list of borders stays too: the fact is only the longest of them.
            said = {attribute.field for attribute in asked if attribute.name != "border"}
            lines = [_line(group, key, text) for key, text in fields.items() if key not in said]
            if asked:
                page, lines = _fact_page(country, asked, lines)
                yield page
            rest += lines
        for number, passage in enumerate(_passages(rest)):
            yield _Page(f"{country.id}/{slug(section)}-{number}", f"{country.name}: {section}", [], passage)


def _fact_page(country: Country, asked: Sequence[Attribute], lines: list[str]) -> tuple[_Page, list[str]]:
    """Return the page of a field group, and the lines that have no room on it."""
    facts = [_fact_line(attribute, country) for attribute in asked]
    room, own = PASSAGE - sum(len(line.split()) for line in facts), 0
    # A list of neighbours beside the longest border would make it the best page for each of them as well.
    while asked[0].name != "border" and own < len(lines) and len(lines[own].split()) <= room:
        room, own = room - len(lines[own].split()), own + 1
    return _Page(fact_page(country, asked[0]), f"{country.name}: {asked[0].page}", facts, lines[:own]), lines[own:]


def _fact_line(attribute: Attribute, country: Country) -> str:
    """Return the line that answers. It names the country again, or a search would prefer a page that says it more often."""
    fact = country.facts[attribute.name]
    return f"{attribute.label} of {country.name}: {fact.value}" + (f" ({fact.note})" if fact.note else "")


def _line(group: str, key: str, text: str) -> str:
    """Return `Group: key: value`; the package repeats a part of the key in some values."""
    last = key.rpartition(": ")[2]
    text = text.removeprefix(f"{last}: ") if last else text
    label = group if not key or key == group else f"{group}, {key}"
    return f"{label}: {text}"


def _passages(lines: Sequence[str]) -> Iterator[list[str]]:
    """Pack lines into passages of at most PASSAGE words; a longer line is broken."""
    page: list[str] = []
    room = PASSAGE
    for line in lines:
        parts = line.split()
        while parts:
            if page and len(parts) > room:
                yield page
                room, page = PASSAGE, []
            head, parts = parts[:room], parts[room:]
            page.append(" ".join(head))
            room -= len(head)
    if page:
        yield page


# --- questions -----------------------------------------------------------------------------------------------------


def questions(*, split: str, hops: Sequence[int] = HOPS) -> list[Question]:
    """Return the questions of a split with these numbers of hops, in a fixed shuffled order: any first n are a fair sample.

    `extra` holds hops, entities (the countries of the chain, by id), and chain: one mapping a hop, with query (`{}` stands for
    what the hop before found), label (of the line to read), read ("value", or "title" for the country), document, answer.
    Raises TaskError on an unknown split or number of hops, DataError where the package is missing.
    """
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r} of the factbook; allowed: {', '.join(SPLITS)}.{did_you_mean(split, SPLITS)}")
    if not hops or set(hops) - set(HOPS):
        raise TaskError(f"hops={tuple(hops)}: expected one or more of {HOPS}")
    return [question for question in all_questions()[split] if question.extra["hops"] in hops]


def manifest() -> dict[str, dict[str, Any]]:
    """Return split → {n, hops: n of each, sha256 over ids, questions and answers, sorted by id}, and the same for "documents"."""
    out = {}
    for split in SPLITS:
        found = sorted(all_questions()[split], key=lambda q: q.id)
        rows = [(q.id, q.question, *q.answers) for q in found]
        out[split] = {"n": len(found), "hops": dict(sorted(Counter(q.extra["hops"] for q in found).items())), "sha256": _sha256(rows)}
    corpus = [(d.id, d.contents) for d in sorted(documents(), key=lambda d: d.id)]
    return out | {"documents": {"n": len(corpus), "sha256": _sha256(corpus)}}


def _sha256(rows: Sequence[tuple[str, ...]]) -> str:
    return hashlib.sha256("\n".join("\t".join(row) for row in rows).encode()).hexdigest()
