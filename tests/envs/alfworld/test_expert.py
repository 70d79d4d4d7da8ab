"""The expert and the planner: they win, in few steps, with admissible commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentgym.envs.alfworld.engine import Dialect, Engine
from agentgym.envs.alfworld.expert import Expert
from agentgym.envs.alfworld.game import Game
from agentgym.envs.alfworld.generate import SPLITS, Households
from agentgym.envs.alfworld.memory import Memory, Wish
from agentgym.envs.alfworld.planner import plan
from agentgym.envs.alfworld.problem import SENTENCES, TASK_TYPES, Goal
from agentgym.errors import EnvError


def play(game: Game, expert: Expert, *, limit: int = 50, dialect: Dialect = "move") -> list[str] | None:
    """Return the commands that won, or None. Checks that each was admissible."""
    engine = Engine(game, dialect=dialect)
    observation, commands = engine.reset(), []
    while not engine.won:
        if len(commands) == limit:
            return None
        info = {"admissible": engine.admissible} | ({"engine": engine} if expert.planner else {})
        commands.append(expert.act(observation, info))
        assert commands[-1] in engine.admissible
        observation = engine.step(commands[-1])
    return commands


def games(split: str, size: str, n: int) -> list[Game]:
    households = Households(split, size=size, n=n)
    return [households.game(id) for id in households.ids()]


# ---- winning


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("size, steps", [("mini", 9), ("small", 10), ("medium", 13), ("full", 17)])
def test_the_expert_wins_generated_games(split: str, size: str, steps: float) -> None:
    played = [play(game, Expert()) for game in games(split, size, 90)]
    lengths = [len(commands) for commands in played if commands is not None]
    allowed_losses = 0 if size in ("mini", "small") else 2
    assert len(lengths) >= len(played) - allowed_losses
    assert sum(lengths) / len(lengths) <= steps


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_both_dialects_and_noise(task_type: str) -> None:
    households = Households("train", task_types=[task_type], n=15)
    for k, id in enumerate(households.ids()):
        assert play(households.game(id), Expert(), dialect="put")
        assert play(households.game(id), Expert(noise=0.3, seed=k), limit=100)


def test_the_planner_is_never_slower_and_mostly_shorter() -> None:
    searched = planned = 0
    for game in games("valid_unseen", "small", 90):
        commands = plan(game)
        assert play(game, Expert(planner=True)) == commands
        searched += len(play(game, Expert()) or ())
        planned += len(commands)
    assert planned < 0.85 * searched


@pytest.mark.parametrize("number", range(6))
def test_plans_are_shortest(number: int) -> None:
    game = next(g for g in games("valid_seen", "mini", 60)[number::6] if len(plan(g)) <= 8)
    assert not wins_within(game, len(plan(game)) - 1)


def wins_within(game: Game, depth: int) -> bool:
    """Return whether any sequence of `depth` commands wins: breadth first, over states."""
    front = [Engine(game)]
    seen = {front[0].state_hash()}
    for _ in range(depth):
        following = []
        for engine in front:
            for command in engine.admissible:
                after = engine.copy()
                after.step(command)
                if after.won:
                    return True
                if after.state_hash() not in seen:
                    seen.add(after.state_hash())
                    following.append(after)
        front = following
    return False


def test_plan_starts_from_the_state_of_an_engine_and_leaves_it_alone() -> None:
    game = games("train", "mini", 3)[2]
    engine = Engine(game)
    before = plan(engine)
    engine.step(before[0])
    state = engine.state_hash()
    assert plan(engine) == before[1:]
    assert engine.state_hash() == state


@pytest.mark.skipif("ALFWORLD_DATA" not in os.environ, reason="needs the official games: set ALFWORLD_DATA")
def test_official_games() -> None:
    files = sorted(Path(os.environ["ALFWORLD_DATA"]).glob("json_2.1.1/valid_seen/*/trial_*/game.tw-pddl"))
    official = [Game.load(file) for file in files]
    assert len(official) >= 140
    assert sum(play(game, Expert()) is not None for game in official) >= 0.95 * len(official)
    assert max(len(plan(game)) for game in official) <= 12


# ---- reading


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_both_sentences_of_a_type_mean_the_same(task_type: str) -> None:
    goal = Goal(task_type, "Mug", "Shelf")
    one, other = (Wish.read(goal.sentence(k)) for k in range(len(SENTENCES[task_type])))
    assert one == other
    assert (one.obj, one.recep) == ("mug", "shelf")


def test_a_task_in_free_words_is_an_error() -> None:
    with pytest.raises(EnvError, match=r"cannot read the task 'tidy up\.'"):
        Wish.read("tidy up.")


def test_memory_follows_the_texts() -> None:
    intro = (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a fridge 1, a microwave 1, and a shelf 2.\n\nYour task is to: heat some apple and put it in fridge."
    )
    wish, memory = Memory.of_intro(intro)
    assert wish == Wish("put", "apple", "fridge", "heat")
    assert memory.receptacles == ("fridge 1", "microwave 1", "shelf 2")
    here = frozenset(["fridge 1"])
    memory.read("You arrive at fridge 1. The fridge 1 is closed.", here)
    assert memory.closed == {"fridge 1"} and not memory.contents
    memory.read("You open the fridge 1. The fridge 1 is open. In it, you see a apple 2, and a mug 1.", here)
    assert memory.contents == {"fridge 1": ["apple 2", "mug 1"]} and not memory.closed
    memory.read("You pick up the apple 2 from the fridge 1.", here)
    assert memory.held == "apple 2" and memory.contents == {"fridge 1": ["mug 1"]}
    memory.read("You cool the apple 2 using the fridge 1.", here)
    memory.read("You heat the apple 2 using the microwave 1.", frozenset(["microwave 1"]))
    assert memory.treated == {("heat", "apple 2")}, "what is hot is no longer cool"
    memory.read("You put the apple 2 in/on the shelf 2.", frozenset(["shelf 2"]))
    memory.read("You close the fridge 1.", here)
    assert memory.held is None and memory.contents["shelf 2"] == ["apple 2"] and memory.closed == {"fridge 1"}


def test_two_objects_meet_in_one_receptacle() -> None:
    memory = Memory(("shelf 1", "shelf 2"), {"shelf 1": ["mug 1"], "shelf 2": ["mug 2"]})
    expert = Expert()
    expert.wish, expert.memory = Wish("two", "mug", "shelf"), memory
    admissible = ["examine shelf 2", "go to shelf 1", "look", "take mug 2 from shelf 2"]
    assert expert.act("You arrive at shelf 2. On the shelf 2, you see a mug 2.", {"admissible": admissible}) == admissible[-1]
    admissible = ["examine shelf 1", "go to shelf 2", "look", "move mug 2 to shelf 1"]
    memory.read("You pick up the mug 2 from the shelf 2.", frozenset(["shelf 2"]))
    assert expert.act("You arrive at shelf 1. On the shelf 1, you see a mug 1.", {"admissible": admissible}) == admissible[-1]


@pytest.mark.parametrize(
    "expert, info, message",
    [
        ({}, {}, r'info\["admissible"\]'),
        ({"planner": True}, {"admissible": ["look"]}, r'info\["engine"\]'),
        ({}, {"admissible": ["look"]}, "must start from the intro"),
    ],
)
def test_what_is_missing_is_named(expert: dict, info: dict, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        Expert(**expert).act("You see nothing.", info)


def test_noise_is_a_probability() -> None:
    with pytest.raises(EnvError, match="between 0 and 1"):
        Expert(noise=1.5)
