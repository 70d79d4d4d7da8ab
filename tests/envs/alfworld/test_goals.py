"""Rules 14 and 15: what wins, what undoes it, and that the engine plays on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentgym.envs.alfworld.engine import Engine
from agentgym.envs.alfworld.game import Game

Tiny = Callable[..., Game]


def wins(engine: Engine, *commands: str) -> list[bool]:
    """Carry out commands, all admissible, and return `won` after each."""
    out = []
    for command in commands:
        assert command in engine.admissible
        engine.step(command)
        out.append(engine.won)
    return out


def test_place_wins_behind_a_closed_door_and_can_be_undone(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"fridge_1": ""}, "2": {"countertop_1": "apple_1"}}, "apple > fridge"))
    assert engine.game.task_type == "pick_and_place_simple" and not engine.won
    way = [
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "go to fridge 1",
        "open fridge 1",
        "move apple 1 to fridge 1",
    ]
    assert wins(engine, *way) == [False] * 4 + [True]
    assert wins(engine, "close fridge 1", "open fridge 1", "take apple 1 from fridge 1", "move apple 1 to fridge 1") == [True, True, False, True]


@pytest.mark.parametrize(
    ("word", "verb", "device", "other", "kind"),
    [
        ("clean", "clean", "sinkbasin 1", None, "pick_clean_then_place_in_recep"),
        ("hot", "heat", "microwave 1", "cool apple 1 with fridge 1", "pick_heat_then_place_in_recep"),
        ("cool", "cool", "fridge 1", "heat apple 1 with microwave 1", "pick_cool_then_place_in_recep"),
    ],
)
def test_a_treated_object(tiny: Tiny, word: str, verb: str, device: str, other: str | None, kind: str) -> None:
    rooms = {"1": {"fridge_1": "", "microwave_1": "", "sinkbasin_1": "", "countertop_1": "apple_1"}}
    engine = Engine(tiny(rooms, f"{word} apple > countertop"))
    assert engine.game.task_type == kind
    take, put, treat = "take apple 1 from countertop 1", "move apple 1 to countertop 1", f"{verb} apple 1 with {device}"
    assert wins(engine, "go to fridge 1", take, put, take, treat, put) == [False] * 5 + [True]
    if other:  # the opposite treatment takes it back
        assert wins(engine, take, other, put) == [False] * 3


def test_a_treated_object_must_be_able_to_be_so(tiny: Tiny) -> None:
    facts = "(isHot apple_bar_9) (objectType apple_bar_9 appleType) (inReceptacle apple_bar_9 shelf_bar_1)"
    assert not Engine(tiny({"1": {"shelf_1": ""}}, "hot apple > shelf", facts=facts)).won
    assert Engine(tiny({"1": {"shelf_1": ""}}, "hot apple > shelf", facts=f"{facts} (heatable apple_bar_9)")).won


def test_two_objects_must_be_two_and_in_one_receptacle(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"shelf_1": "apple_1", "shelf_2": "", "countertop_1": "apple_2"}}, "two apple > shelf"))
    assert engine.game.task_type == "pick_two_obj_and_place"
    first, second = "take apple 1 from countertop 1", "move apple 1 to shelf 1"  # apple 2 lies in shelf 2
    assert wins(engine, "go to shelf 1", first, second) == [False] * 3
    assert wins(engine, "take apple 1 from shelf 1", "move apple 1 to shelf 2") == [False, True]


@pytest.mark.parametrize("order", ["lamp first", "book first"])
def test_looking_in_light_in_any_order(tiny: Tiny, order: str) -> None:
    engine = Engine(tiny({"1": {"desk_1": "desklamp_1"}, "2": {"shelf_1": "book_1"}}, "book in light"))
    assert engine.game.task_type == "look_at_obj_in_light"
    if order == "lamp first":
        way = ["go to desk 1", "use desklamp 1", "go to shelf 1", "take book 1 from shelf 1", "go to desk 1"]
    else:
        way = ["go to shelf 1", "take book 1 from shelf 1", "go to desk 1", "use desklamp 1"]
    assert wins(engine, *way) == [False] * (len(way) - 1) + [True]
    assert wins(engine, "go to shelf 1", "go to desk 1", "move book 1 to desk 1") == [False, True, False]


def test_an_object_in_two_receptacles_stays_in_one_when_it_is_taken(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"shelf_1": "apple_1", "countertop_1": "mug_1"}, "2": {"shelf_2": "apple_1"}}, "apple > countertop"))
    engine.step("go to shelf 2")
    engine.step("take apple 1 from shelf 2")
    assert engine.step("go to shelf 1").endswith("On the shelf 1, you see a apple 1.")
    assert engine.step("examine apple 1") == "There's nothing special about apple 1."
    assert engine.step("move apple 1 to shelf 1").startswith("You move")
    assert engine.step("examine shelf 1") == "On the shelf 1, you see a apple 1."  # once, not twice
