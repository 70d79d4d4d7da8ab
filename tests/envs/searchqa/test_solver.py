"""Every embedded question can be answered by one search a hop, and not by a single search."""

from __future__ import annotations

import pytest

from agentgym.envs.searchqa.data import Question
from agentgym.envs.searchqa.factbook import documents, questions
from agentgym.envs.searchqa.index import Index
from agentgym.envs.searchqa.scoring import exact_match
from agentgym.envs.searchqa.solver import UNKNOWN, Page, Solver, direct, read_page

CHAIN = (
    {"query": "National anthem Negaraku", "label": "National anthem", "read": "title"},
    {"query": "Highest point of {}", "label": "Highest point", "read": "value"},
)
ANTHEM = '"Malaysia: National anthem"\nNational anthem of Malaysia: Negaraku (My Country)\nNational anthem, history: adopted 1957'
OTHER = '"Fiji: National anthem"\nNational anthem of Fiji: God Bless Fiji (Let Us Show Pride)'
POINTS = '"Malaysia: Elevation"\nHighest point of Malaysia: Gunung Kinabalu (4,095 m)\nLowest point of Malaysia: Indian Ocean (0 m)'


@pytest.fixture(scope="module", params=[(None, False, 3), (30, True, 1), (1, True, 1)], ids=str)
def engine(request: pytest.FixtureRequest) -> tuple[Index, int]:
    """BM25 over the corpus in a size, and how many documents a search shows."""
    words, asked, topk = request.param
    return Index.from_documents(documents(words=words, asked=asked)), topk


def search(engine: tuple[Index, int], queries: list[str]) -> list[list[str]]:
    index, topk = engine
    return [[hit.document.contents for hit in hits] for hits in index.search(queries, topk)]


def solved(engine: tuple[Index, int], found: list[Question]) -> float:
    """Return the share of questions that the solver answers; it sees what its searches found, and nothing else."""
    solvers = [Solver(question.extra["chain"]) for question in found]
    observed: list[list[list[str]]] = [[] for _ in found]
    for _ in range(found[0].extra["hops"]):
        steps = [solver.next(seen) for solver, seen in zip(solvers, observed, strict=True)]
        assert all(kind == "search" for kind, _ in steps)
        for seen, pages in zip(observed, search(engine, [query for _, query in steps]), strict=True):
            seen.append(pages)
    said = [solver.next(seen) for solver, seen in zip(solvers, observed, strict=True)]
    assert all(kind == "answer" for kind, _ in said)
    return sum(exact_match(text, q.answers) for (_, text), q in zip(said, found, strict=True)) / len(found)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_solver_answers_the_test_split_and_one_search_does_not(engine: tuple[Index, int], hops: int) -> None:
    found = questions(split="test", hops=(hops,))
    at_once = search(engine, [question.question for question in found])
    once = sum(exact_match(direct(q.extra["chain"], pages), q.answers) for q, pages in zip(found, at_once, strict=True)) / len(found)
    assert solved(engine, found) >= (0.98 if engine[1] == 1 else 0.99)  # one document a search, or three
    assert once > 0.85 if hops == 1 else once < 0.05


def test_a_page_is_read_by_its_lines() -> None:
    assert read_page(POINTS) == Page("Malaysia", {"Highest point": "Gunung Kinabalu", "Lowest point": "Indian Ocean"})
    assert read_page(ANTHEM) == Page("Malaysia", {"National anthem": "Negaraku"})
    assert read_page('"Evan Morris"\nEvan Morris (1977) was a lobbyist.').values == {}
    assert read_page("") == Page("", {})


def test_the_solver_plans_reads_and_answers() -> None:
    solver = Solver(CHAIN)
    assert solver.next([]) == ("search", "National anthem Negaraku")
    assert solver.next([[OTHER, ANTHEM]]) == ("search", "Highest point of Malaysia")
    assert solver.next([[OTHER, ANTHEM], [POINTS]]) == ("answer", "Gunung Kinabalu")
    assert solver.next([]) == ("search", "National anthem Negaraku")  # nothing is remembered


def test_where_nothing_fits_the_solver_guesses() -> None:
    assert Solver(CHAIN).next([[OTHER]]) == ("search", "Highest point of Fiji")
    assert Solver(CHAIN).next([[ANTHEM], []]) == ("answer", UNKNOWN)
    assert Solver(CHAIN).next([[], []]) == ("answer", UNKNOWN)


def test_the_solver_reads_what_was_found_and_not_what_it_should_have_found() -> None:
    (question,) = [q for q in questions(split="train", hops=(2,)) if q.id == "factbook/2hop/malaysia/anthem-highest_point"]
    forged = POINTS.replace("Gunung Kinabalu", "Forged Peak")
    assert Solver(question.extra["chain"]).next([[ANTHEM], [forged]]) == ("answer", "Forged Peak")


def test_the_reader_of_the_baseline_reads_the_first_fitting_line() -> None:
    assert direct(CHAIN, [ANTHEM, POINTS]) == "Gunung Kinabalu"
    assert direct(CHAIN[:1], [OTHER, ANTHEM]) == "Fiji"
    assert direct(CHAIN, [ANTHEM]) == UNKNOWN
