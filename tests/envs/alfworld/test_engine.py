"""The rules of the engine, each on a game of a few facts worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentgym.envs.alfworld.engine import Engine
from agentgym.envs.alfworld.game import Game
from agentgym.envs.alfworld.tables import readable_names
from agentgym.envs.alfworld.texts import NOTHING_HAPPENS, listing

Tiny = Callable[..., Game]


def play(engine: Engine, *commands: str) -> str:
    """Carry out commands, all of which must be admissible, and return the last observation."""
    said = ""
    for command in commands:
        assert command in engine.admissible
        said = engine.step(command)
        assert said != NOTHING_HAPPENS
    return said


def kitchen(tiny: Tiny, goal: str = "apple > countertop", **options: str) -> Engine:
    rooms = {
        "1": {"fridge_1": "apple_1 mug_1"},
        "2": {"countertop_1": "knife_1 apple_2"},
        "3": {"microwave_1": "", "sinkbasin_1": ""},
        "4": {"drawer_1": "", "drawer_2!": "book_1"},
    }
    return Engine(tiny(rooms, goal, **options))


def test_rule_1_names_count_down_along_the_sorted_ids_and_basins_are_a_class_of_their_own() -> None:
    ids = ["apple_bar_a", "apple_bar__b", "sink_bar_1_bar_sinkbasin", "sink_bar_1", "sink_bar_2", "agent1"]
    assert readable_names(ids) == {
        "apple_bar__b": "apple 2",  # "_" sorts before letters
        "apple_bar_a": "apple 1",
        "sink_bar_1": "sink 2",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "sink_bar_2": "sink 1",
        "agent1": "agent1 ",
    }


@pytest.mark.parametrize(
    ("names", "text"),
    [([], "nothing"), (["x"], "a x"), (["x", "y"], "a x, and a y"), (["x", "y", "z"], "a x, a y, and a z")],
)
def test_rule_2_lists(names: list[str], text: str) -> None:
    assert listing(names) == text


def test_rule_2_lists_are_in_the_order_of_ids_not_names(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    # apple_bar_1 is "apple 2" and sorts before knife; the intro counts both drawers down.
    assert play(engine, "go to countertop 1") == "You arrive at countertop 1. On the countertop 1, you see a apple 1, and a knife 1."
    assert "a drawer 2, a drawer 1, a fridge 1" in engine.reset()


def test_rule_3_intro(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"fridge_1": ""}, "2": {"countertop_1": ""}}, task="put a apple in countertop"))
    assert engine.reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a countertop 1, and a fridge 1.\n\nYour task is to: put a apple in countertop."
    )


@pytest.mark.parametrize("command", ["go to fridge 1", "  go to fridge 1 \n"])
def test_rule_4_blanks_around_a_command_pass(tiny: Tiny, command: str) -> None:
    assert kitchen(tiny).step(command).startswith("You arrive")


@pytest.mark.parametrize(
    "command",
    ["", " ", "Go to fridge 1", "go  to fridge 1", "go to fridge 1.", "go to fridge 9", "go fridge 1", "go", "fly",
     "look around", "inventory 1", "help me", "take", "take apple 2", "open fridge 1", "put apple 2 in/on fridge 1",
     "use", "slice a with b"],
)  # fmt: skip
def test_rule_4_anything_else_does_nothing(tiny: Tiny, command: str) -> None:
    engine = kitchen(tiny)
    before = engine.state_hash()
    assert engine.step(command) == NOTHING_HAPPENS
    assert engine.state_hash() == before


def test_rule_5_a_place_that_is_shared_is_no_target(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    assert play(engine, "go to microwave 1") == "You arrive at microwave 1. The microwave 1 is closed."
    assert not {"go to microwave 1", "go to sinkbasin 1"} & set(engine.admissible)
    assert engine.step("go to sinkbasin 1") == NOTHING_HAPPENS


def test_rule_5_the_older_dialect_names_the_location(tiny: Tiny) -> None:
    game = tiny({"1": {"fridge_1": ""}, "2": {"countertop_1": ""}})
    assert play(Engine(game, dialect="put"), "go to countertop 1").startswith("You arrive at loc 1. On the countertop 1,")


def test_rule_6_doors(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    assert play(engine, "go to fridge 1", "examine fridge 1") == "The fridge 1 is closed."
    said = play(engine, "open fridge 1")
    assert said == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2, and a mug 1."
    assert play(engine, "examine fridge 1") == "The fridge 1 is open. In it, you see a apple 2, and a mug 1."
    assert play(engine, "close fridge 1") == "You close the fridge 1."
    assert not any(command.startswith("take") for command in engine.admissible)


def test_rule_6_openability_belongs_to_the_id(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    play(engine, "go to drawer 2")
    assert {c for c in engine.admissible if "drawer" in c} == {
        "examine drawer 1", "examine drawer 2", "open drawer 2", "take book 1 from drawer 1",
    }  # fmt: skip


def test_rule_7_take_and_move(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    assert play(engine, "inventory") == "You are not carrying anything."
    assert play(engine, "go to countertop 1", "take knife 1 from countertop 1") == "You pick up the knife 1 from the countertop 1."
    assert play(engine, "inventory") == "You are carrying: a knife 1."
    assert "take apple 1 from countertop 1" not in engine.admissible  # hands are full
    assert play(engine, "move knife 1 to countertop 1") == "You move the knife 1 to the countertop 1."


def test_rule_7_a_receptacle_takes_what_its_file_says(tiny: Tiny) -> None:
    engine = kitchen(tiny)  # nothing goes into a drawer there
    play(engine, "go to drawer 1", "take book 1 from drawer 1")
    assert not any(command.startswith("move") for command in engine.admissible)
    assert engine.step("move book 1 to drawer 1") == NOTHING_HAPPENS


def test_rule_7_capacity_is_never_checked(tiny: Tiny) -> None:
    many = " ".join(f"apple_{i}" for i in range(30))
    engine = Engine(tiny({"1": {"countertop_1": many}, "2": {"shelf_1": ""}}))
    for i in range(1, 31):
        play(
            engine,
            "go to countertop 1",
            f"take apple {i} from countertop 1",
            "go to shelf 1",
            f"move apple {i} to shelf 1",
        )


def test_rule_7_what_cannot_be_picked_up(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"shelf_1": "statue_1"}}))
    assert play(engine, "go to shelf 1") == "You arrive at shelf 1. On the shelf 1, you see a statue 1."
    assert engine.step("take statue 1 from shelf 1") == NOTHING_HAPPENS


def test_rule_8_treatments_and_their_order(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    play(engine, "go to countertop 1", "take apple 1 from countertop 1", "go to microwave 1")
    assert play(engine, "heat apple 1 with microwave 1") == "You heat the apple 1 using the microwave 1."  # door closed
    assert play(engine, "clean apple 1 with sinkbasin 1") == "You clean the apple 1 using the sinkbasin 1."
    assert play(engine, "examine apple 1") == "This is a hot and clean apple 1."
    play(engine, "go to fridge 1", "cool apple 1 with fridge 1")
    assert play(engine, "examine apple 1") == "This is a cool and clean apple 1."
    play(engine, "go to microwave 1", "heat apple 1 with microwave 1")
    assert play(engine, "examine apple 1") == "This is a hot and clean apple 1."


def test_rule_8_a_device_treats_only_what_can_be_treated_and_only_in_hand(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    play(engine, "go to countertop 1", "take knife 1 from countertop 1", "go to microwave 1")
    assert engine.step("heat knife 1 with microwave 1") == NOTHING_HAPPENS
    assert engine.step("clean apple 1 with sinkbasin 1") == NOTHING_HAPPENS
    assert "clean knife 1 with sinkbasin 1" in engine.admissible


def test_rule_8_a_bathtub_does_not_clean(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"bathtubbasin_1": "apple_1"}}))
    play(engine, "go to bathtubbasin 1", "take apple 1 from bathtubbasin 1")
    assert not any(command.startswith("clean") for command in engine.admissible)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ("isHot isClean isSliced", "This is a hot and clean sliced apple 1."),
        ("isCool isClean isSliced", "This is a cool and clean sliced apple 1."),
        ("isClean isSliced", "This is a clean sliced apple 1."),
        ("isHot isSliced", "This is a hot sliced apple 1."),
        ("isCool isSliced", "This is a cool sliced apple 1."),
        ("isHot isClean", "This is a hot and clean apple 1."),
        ("isCool isClean", "This is a cool and clean apple 1."),
        ("isHot", "This is a hot apple 1."),
        ("isClean", "This is a clean apple 1."),
        ("isCool", "This is a cold apple 1."),
        ("isSliced", "This is a sliced apple 1."),
        ("", "There's nothing special about apple 1."),
    ],
)
def test_rule_9_examine_an_object(tiny: Tiny, properties: str, text: str) -> None:
    facts = " ".join(f"({p} apple_bar_1)" for p in properties.split())
    engine = Engine(tiny({"1": {"shelf_1": "apple_1"}}, facts=facts))
    play(engine, "go to shelf 1")
    assert engine.step("examine apple 1") == NOTHING_HAPPENS  # held ones only
    assert play(engine, "take apple 1 from shelf 1", "examine apple 1") == text


def test_rule_9_what_lies_in_a_mug_stays_there_in_words(tiny: Tiny) -> None:
    facts = "(inReceptacleObject knife_bar_1 mug_bar_1) (inReceptacleObject mug_bar_1 mug_bar_1)"
    engine = Engine(tiny({"1": {"shelf_1": "mug_1 knife_1"}}, facts=facts))
    said = "This is a normal mug 1. In it, you see a knife 1."
    assert play(engine, "go to shelf 1", "take mug 1 from shelf 1", "examine mug 1") == said
    play(
        engine,
        "move mug 1 to shelf 1",
        "take knife 1 from shelf 1",
        "move knife 1 to shelf 1",
        "take mug 1 from shelf 1",
    )
    assert play(engine, "examine mug 1") == said


def test_rule_10_look(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    assert play(engine, "look") == "You are in the middle of a room. Looking quickly around you, you see nothing."
    play(engine, "go to countertop 1")
    assert play(engine, "look") == "You are facing the countertop 1. Next to it, you see nothing."
    play(engine, "take knife 1 from countertop 1", "go to microwave 1")
    assert play(engine, "look") == "You are facing the microwave 1, and sinkbasin 1. Next to it, you see nothing."


def test_rule_10_what_moved_between_two_receptacles_of_one_place_is_beside_the_first(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"shelf_1": "apple_1 book_1", "shelf_2": "", "shelf_3": ""}}))
    play(engine, "go to shelf 3", "take apple 1 from shelf 3", "move apple 1 to shelf 2")
    facing = "You are facing the shelf 3, shelf 2, and shelf 1. Next to it, you see"
    assert play(engine, "look") == f"{facing} a apple 1."
    play(engine, "take apple 1 from shelf 2", "move apple 1 to shelf 1")
    assert play(engine, "look") == f"{facing} a apple 1, and a apple 1."  # out of two: named twice
    play(engine, "take apple 1 from shelf 1", "move apple 1 to shelf 3")
    assert play(engine, "look") == f"{facing} a apple 1, and a apple 1."


def test_rule_11_a_lamp_is_always_turned_on_even_behind_a_door_and_with_full_hands(tiny: Tiny) -> None:
    engine = Engine(tiny({"1": {"drawer_1": "desklamp_1", "shelf_1": "apple_1"}}))
    play(engine, "go to shelf 1", "take apple 1 from shelf 1")
    assert play(engine, "use desklamp 1") == "You turn on the desklamp 1."
    assert play(engine, "use desklamp 1") == "You turn on the desklamp 1."


def test_rule_12_slicing_goes_by_the_objects_own_location(tiny: Tiny) -> None:
    engine = kitchen(tiny)
    play(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert play(engine, "slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
    assert play(engine, "slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
    assert play(engine, "go to fridge 1", "slice apple 2 with knife 1").startswith("You sliced")  # behind its door
    play(engine, "go to countertop 1", "move knife 1 to countertop 1", "take apple 1 from countertop 1")
    assert play(engine, "examine apple 1") == "This is a sliced apple 1."


def test_rule_12_take_removes_only_the_location_where_the_agent_stands(tiny: Tiny) -> None:
    # The file lays apple_9 in shelf 1, at place 1, but says that it is at place 2.
    facts = "(objectAtLocation apple_bar_9 loc_bar_2) (inReceptacle apple_bar_9 shelf_bar_1) (sliceable apple_bar_9) "
    facts += "(pickupable apple_bar_9) (objectType apple_bar_9 appleType)"
    engine = Engine(tiny({"1": {"shelf_1": ""}, "2": {"countertop_1": "knife_1"}}, "mug > shelf", facts=facts))
    fetch = ["go to countertop 1", "take knife 1 from countertop 1"]
    play(engine, *fetch, "slice apple 1 with knife 1", "go to shelf 1")
    assert engine.step("slice apple 1 with knife 1") == NOTHING_HAPPENS
    play(engine, "move knife 1 to shelf 1", "take apple 1 from shelf 1", "move apple 1 to shelf 1")
    play(engine, "take knife 1 from shelf 1", "slice apple 1 with knife 1")  # put adds place 1 …
    play(engine, "go to countertop 1", "slice apple 1 with knife 1")  # … and take left place 2


def test_rule_13_help_belongs_to_the_newer_dialect(tiny: Tiny) -> None:
    game = tiny({"1": {"shelf_1": ""}})
    text = Engine(game).step("help")
    assert text.startswith("Available commands:\n  look: ") and text.endswith("sharp object\n")
    assert Engine(game, dialect="put").step("help") == NOTHING_HAPPENS
    assert "help" not in Engine(game, dialect="put").admissible


def test_the_dialects_differ_in_three_commands_and_nothing_else(tiny: Tiny) -> None:
    new = kitchen(tiny)
    old = Engine(new.game, dialect="put")
    for engine in (new, old):
        play(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert set(new.admissible) - set(old.admissible) == {"help", "move knife 1 to countertop 1"}
    assert set(old.admissible) - set(new.admissible) == {"put knife 1 in/on countertop 1"}
    assert old.step("move knife 1 to countertop 1") == new.step("put knife 1 in/on countertop 1") == NOTHING_HAPPENS
    assert old.step("put knife 1 in/on countertop 1") == "You put the knife 1 in/on the countertop 1."
    with pytest.raises(ValueError, match="dialect"):
        Engine(new.game, dialect="place")  # type: ignore[arg-type]
