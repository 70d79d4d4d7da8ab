"""A scripted solver for the embedded questions: it knows the plan of a question and reads the facts out of what was found.

It shows that every question can be answered by searching, gives trajectories for a supervised warm start, and is the reader of
the baselines. Nothing it says comes from `Question.answers` or from the ids of documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentgym.answers import normalise

UNKNOWN = "unknown"


class Page(NamedTuple):
    """What a document of the factbook says: about which country, and label → value, without what stands in brackets."""

    country: str
    values: dict[str, str]


def read_page(contents: str) -> Page:
    """Read a document: `"Malaysia: Elevation"`, then lines like `Highest point of Malaysia: Gunung Kinabalu (4,095 m)`."""
    title, _, text = contents.partition("\n")
    country = title.strip('"').rpartition(": ")[0]
    lines = (line.partition(f" of {country}: ") for line in text.split("\n"))
    return Page(country, {label: value.partition(" (")[0] for label, _, value in lines if value})


class Solver:
    """Answers one question by one search a hop.

    >>> solver = Solver(question.extra["chain"])
    >>> solver.next([])                       # nothing found yet
    ("search", "National anthem Negaraku")
    """

    def __init__(self, chain: Sequence[Mapping[str, Any]]) -> None:
        """Take the plan from `Question.extra["chain"]`; of each hop only query, label and read are looked at."""
        self._plan = [(str(hop["query"]), str(hop["label"]), str(hop["read"])) for hop in chain]

    def next(self, observed: Sequence[Sequence[str]]) -> tuple[str, str]:
        """Return ("search", query) or ("answer", text) after `observed`: for each search so far, the contents of what it found.

        Where a search did not find what it was for, the best guess is used: the first document with the right label.
        """
        found = ""
        for number, (query, label, read) in enumerate(self._plan):
            query = query.format(found) if "{}" in query else query
            if number == len(observed):
                return "search", query
            key = query.removeprefix(label).removeprefix(" of ").strip()
            found = _read([read_page(contents) for contents in observed[number]], label, read, key)
        return "answer", found


def direct(chain: Sequence[Mapping[str, Any]], found: Sequence[str]) -> str:
    """Return the answer of a reader after a single search: the value under the last label in the first document that has it.

    The baseline that several hops must beat: search with the question itself and read.
    """
    last = chain[-1]
    return _read([read_page(contents) for contents in found], str(last["label"]), str(last["read"]), None)


def _read(pages: Sequence[Page], label: str, read: str, key: str | None) -> str:
    """Return the value under `label` of the country `key`; for "title" the country whose value is `key`; else a guess."""
    having = [page for page in pages if label in page.values]
    if key is not None:
        wanted = normalise(key)
        fitting = [page for page in having if normalise(page.values[label] if read == "title" else page.country) == wanted]
        having = fitting or having
    if not having:
        return UNKNOWN
    return having[0].country if read == "title" else having[0].values[label]
