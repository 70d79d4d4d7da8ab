"""The rules of the shop, on a shelf of a few products: what each action does, what pages show, and that hostile input does nothing."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs.webshop import catalogue as catalogues
from agentgym.envs.webshop import render
from agentgym.envs.webshop.goals import Drawn
from agentgym.envs.webshop.nouns import Nouns
from agentgym.envs.webshop.shop import Session, Shop, clickables
from agentgym.envs.webshop.types import Page, Place, Product, Wish

LAMPS = [
    Product(
        f"B00000000{i}",
        f"Lamp {i} for desks",
        "garden",
        "lamps" if i else "rare lamps",
        "Home › Lamps",
        (10.0 + i,),
        f"It is lamp {i}.",
        ("bright", ""),
        options={"color": ("red", "blue"), "size": ("small", "blue", "buy now")},
        attributes=("bright", f"number {i}"),
        wishes=(Wish(f"a bright lamp number {i}", ("bright",), ("red",)),),
    )
    for i in range(8)
]


@pytest.fixture(scope="module")
def goals(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    folder = tmp_path_factory.mktemp("shelf")
    catalogues.build(LAMPS, folder, progress=False)
    return Drawn(catalogues.Catalogue(folder), "human")


@pytest.fixture
def session(goals: Drawn) -> Session:
    number = next(i for i in range(len(goals)) if goals.goal(i).asin == "B000000003")
    return Session(Shop(goals.catalogue, Nouns([]), per_page=3), goals, goals.goal(number))


def play(session: Session, *actions: str) -> Place:
    for action in actions:
        assert session.act(action), action
    return session.place


def test_the_way_to_a_purchase(session: Session) -> None:
    assert list(session.clickables) == ["search"]
    assert play(session, "search[Desk LAMPS 3]") == Place("results", ("desk", "lamps", "3"))
    assert list(session.clickables)[:3] == ["back to search", "next >", "b000000003"] and session.page.total == 8
    at = play(session, "click[B000000003]")
    assert at == Place("item", ("desk", "lamps", "3"), 1, "B000000003") and session.visited == {"B000000003"}
    assert play(session, "click[red]", "click[blue]", "click[small]").options == (("color", "red"), ("size", "small"))
    assert play(session, "click[description]") == Place("sub", at.keywords, 1, at.asin, "Description", (("color", "red"), ("size", "small")))
    assert play(session, "click[< Prev]").options == (("color", "red"), ("size", "small"))
    assert play(session, "click[Buy Now] and trailing words").kind == "done"
    assert session.reward_info is not None and session.reward_info["reward"] == 1.0
    assert session.clickables == {} and not session.act("click[back to search]")
    assert play(session, "search[lamps]").kind == "results"


def test_going_back(session: Session) -> None:
    play(session, "search[lamps]", "click[next >]", "click[next >]")
    asin = session.page.shown[0].asin
    at = play(session, f"click[{asin}]", "click[red]")
    assert at.page == 3
    assert play(session, "click[< prev]") == Place("results", ("lamps",), 3)
    assert play(session, f"click[{asin}]").options == ()
    assert play(session, "click[< prev]", "click[< prev]").page == 2
    assert play(session, "click[< prev]").page == 1 and "< prev" not in session.clickables
    assert play(session, "click[back to search]") == Place() and not session.visited
    play(session, "search[lamps]", *["click[next >]"] * 20)
    assert session.page.shown == () and session.page.total == 8 and list(session.clickables) == ["back to search", "< prev", "next >"]


def test_of_two_options_with_one_value_the_later_is_meant_and_a_button_stays_a_button(session: Session) -> None:
    play(session, "search[lamp 3]", "click[b000000003]")
    assert play(session, "click[blue]").options == (("size", "blue"),)
    assert session.clickables["buy now"].kind == "button"
    assert play(session, "click[buy now]").kind == "done"


NOTHING = [
    "",
    "search",
    "search[]",
    "click[]",
    "click[search]",
    "Click[red]",
    " search[x]",
    "search [x]",
    "I do click[red]",
    "click[ red]",
    "click[red",
    "click[no such thing]",
    "search[a [b] c]",
    "search[line\nbreak]",
    "buy[now]",
    "think[a lot]",
    "click[attributes]",
    "click[next >]",
]


@pytest.mark.parametrize("action", NOTHING)
def test_what_does_nothing(session: Session, action: str) -> None:
    play(session, "search[lamp 3]", "click[b000000003]")
    before = (session.place, session.page, session.visited)
    assert not session.act(action) and (session.place, session.page, session.visited) == before


@given(
    st.text()
    | st.text(string.ascii_letters + "[]<>{}%/+ \n", max_size=40)
    | st.builds("{}[{}]".format, st.sampled_from(["search", "click"]), st.text())
)
@settings(max_examples=300)
def test_hostile_actions(goals: Drawn, action: str) -> None:
    session = Session(Shop(goals.catalogue, Nouns([]), per_page=3), goals, goals.goal(0))
    for _ in range(2):
        before = (session.place, session.page)
        accepted = session.act(action)
        assert accepted or (session.place, session.page) == before
        for show in (render.text, render.rich):
            assert isinstance(show(session.page), str)
        assert render.url(session.place, "0").startswith(render.HOST)


def test_first_words_with_a_meaning(goals: Drawn) -> None:
    shop, goal = Shop(goals.catalogue, Nouns([])), goals.goal(0)

    def rows(query: str) -> list[int]:
        return list(shop.search(tuple(query.split(" ")), goal))

    assert rows("<q> rare lamps") == [0] and rows("<q> lamps") == [1, 2, 3, 4, 5, 6, 7] and rows("<c> garden") == list(range(8))
    assert rows("<a> number 5") == [5] and rows("<a>") == rows("<c>") == rows("<q>") == rows("<a> nothing") == []
    drawn = rows("<r>")
    assert sorted(drawn) == list(range(8)) and rows("<r>") == drawn and rows("<r> again") != drawn


def test_two_sessions_know_nothing_of_each_other(goals: Drawn) -> None:
    shop = Shop(goals.catalogue, Nouns([]))
    one, two = Session(shop, goals, goals.goal(0)), Session(shop, goals, goals.goal(1))
    play(one, "search[lamp 3]", "click[b000000003]", "click[red]")
    assert two.place == Place() and not two.visited and two.page.instruction != one.page.instruction
    play(two, "search[lamps]")
    assert not any(n.on for n in render.nodes(two.page)) and one.place.options == (("color", "red"),)


def test_pages_as_text() -> None:
    lamp = LAMPS[2]
    results = Page(Place("results", ("x",), 2), "find it", 8, (lamp,), visited=frozenset({lamp.asin}))
    assert render.text(results) == (
        "Instruction: [SEP] find it [SEP] Back to Search [SEP] Page 2 (Total results: 8) [SEP] < Prev [SEP] Next > [SEP] B000000002 [SEP] "
        "Lamp 2 for desks [SEP] $12.0"
    )
    assert "\n[clicked button] B000000002 [clicked button_]\nLamp 2 for desks\n$12.0\n" in render.rich(results)
    item = Page(Place("item", ("x",), 1, lamp.asin, options=(("color", "red"),)), "find it", product=lamp)
    assert render.rich(item).startswith("You have clicked red.\nInstruction:\nfind it\n[button] Back to Search [button_]\n")
    assert "color\n  [clicked button] red [clicked button_]\n  [button] blue [button_]\nsize\n" in render.rich(item)
    features = Page(Place("sub", ("x",), 1, lamp.asin, "Features"), "find it", product=lamp)
    assert render.text(features) == "Instruction: [SEP] find it [SEP] Back to Search [SEP] < Prev [SEP] bright [SEP] "
    assert list(clickables(features)) == ["back to search", "< prev"]
    assert render.url(item.place, "7") == 'http://127.0.0.1:3000/item_page/7/B000000002/x/1/{"color": "red"}'
