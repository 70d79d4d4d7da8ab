"""Reading game files: both formats, and every way in which a file may be damaged."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.envs.alfworld.game import Game, GameFileError

ROOMS = {"1": {"fridge_1": "apple_1 mug_1"}, "2": {"countertop_1": "knife_1"}}
Source = Callable[..., str]


def changed(text: str, **parts: object) -> str:
    """Return a game file with keys replaced, or dropped where the value is None."""
    data = json.loads(text) | parts
    return json.dumps({key: value for key, value in data.items() if value is not None})


def test_a_game_is_read(tiny_source: Source) -> None:
    game = Game.parse(tiny_source(ROOMS, "cool apple > fridge", task="cool some apple and put it in fridge"))
    assert game.task == "cool some apple and put it in fridge"
    assert game.task_type == "pick_cool_then_place_in_recep"
    assert game.receptacle_names == ("countertop 1", "fridge 1")
    assert [game.receptacle_names[r] for r in game.openable] == ["fridge 1"]
    assert [[game.object_names[o] for o in inside] for inside in game.contents] == [["knife 1"], ["apple 1", "mug 1"]]
    assert game.devices == ("", "cool")
    assert game.location_names[game.start] == "loc 3"
    with pytest.raises(AttributeError):
        game.task = "another"  # type: ignore[misc]


def test_a_game_survives_pickling(tiny_source: Source) -> None:
    game = Game.parse(tiny_source(ROOMS))
    twin = pickle.loads(pickle.dumps(game))
    for name in game.__slots__:
        assert getattr(twin, name) == getattr(game, name)


def test_the_goal_decides_not_the_folder(tmp_path: Path, tiny_source: Source) -> None:
    file = tmp_path / "pick_two_obj_and_place-Mug-None-Shelf-1" / "game.tw-pddl"
    file.parent.mkdir()
    file.write_text(tiny_source(ROOMS, "apple in light"))
    assert Game.load(file).task_type == "look_at_obj_in_light"


def test_new_files_have_a_walkthrough_and_may_have_comments(tiny_source: Source) -> None:
    text = tiny_source(ROOMS)
    problem = json.loads(text)["pddl_problem"].replace("(:goal", "; what (wins\n(:goal")
    game = Game.parse(changed(text, pddl_problem=problem, walkthrough=["go to fridge 1"]))
    assert game.task_type == "pick_and_place_simple"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_files_are_refused_by_name(share: float, tiny_source: Source) -> None:
    text = tiny_source(ROOMS)
    with pytest.raises(GameFileError, match=r"^room 7: .*damaged"):
        Game.parse(text[: int(len(text) * share)], source="room 7")


@pytest.mark.parametrize("key", ["pddl_problem", "grammar", "pddl_domain"])
@pytest.mark.parametrize("value", [None, 3])
def test_missing_keys(key: str, value: object, tiny_source: Source) -> None:
    with pytest.raises(GameFileError, match=f"the key '{key}' is missing"):
        Game.parse(changed(tiny_source(ROOMS), **{key: value}))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(:goal", "(:metric", r"no \(:goal"),
        ("(:init", "(:facts", r"no complete \(:init"),
        ("(inReceptacle ?o ?r)", "(onTop ?o ?r)", "none of the six known kinds; its conditions are objecttype, ontop"),
        ("(objectType ?o appleType)", "", "none of the six known kinds"),
        ("(atLocation agent1 loc_bar_0)", "", "exactly one location"),
        (
            "(atLocation agent1 loc_bar_0)",
            "(atLocation agent1 loc_bar_0) (holds agent1 apple_bar_1)",
            "the fact 'holds'",
        ),
        ("(openable fridge_bar_1)", "(= (distance a b) 3)", "one or two arguments|the fact"),
        ("(openable fridge_bar_1)", "(receptacleAtLocation fridge_bar_1 loc_bar_2)", "at 2 locations"),
    ],
)
def test_problems_that_cannot_be_played(old: str, new: str, message: str, tiny_source: Source) -> None:
    text = tiny_source(ROOMS)
    problem = json.loads(text)["pddl_problem"]
    assert old in problem
    with pytest.raises(GameFileError, match=message):
        Game.parse(changed(text, pddl_problem=problem.replace(old, new)))


def test_a_cut_problem_inside_valid_json(tiny_source: Source) -> None:
    text = tiny_source(ROOMS)
    problem = json.loads(text)["pddl_problem"]
    for cut in range(0, len(problem) - 2, 97):
        with pytest.raises(GameFileError):
            Game.parse(changed(text, pddl_problem=problem[:cut]))


@pytest.mark.parametrize(("grammar", "message"), [("", "no line"), ('"Your task is to: UNKNOWN GOAL."', "UNKNOWN GOAL")])
def test_a_grammar_without_a_task(grammar: str, message: str, tiny_source: Source) -> None:
    with pytest.raises(GameFileError, match=message):
        Game.parse(changed(tiny_source(ROOMS), grammar=grammar))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GameFileError, match=r"nowhere\.tw-pddl"):
        Game.load(tmp_path / "nowhere.tw-pddl")
