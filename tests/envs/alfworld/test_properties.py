"""What holds for every game and every sequence of commands."""

from __future__ import annotations

import copy
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs.alfworld.engine import Dialect, Engine
from agentgym.envs.alfworld.game import Game
from agentgym.envs.alfworld.generate import Households
from agentgym.envs.alfworld.texts import NOTHING_HAPPENS

GAMES = st.sampled_from([("small", i) for i in range(12)] + [("full", i) for i in range(6)])
DIALECTS = st.sampled_from(["move", "put"])
VERBS = [
    "go", "open", "close", "take", "put", "move", "examine", "use", "clean", "heat", "cool", "slice", "look",
    "inventory", "help",
]  # fmt: skip


@cache
def game(size: str, number: int) -> Game:
    households = Households("train", size=size, n=12)
    return households.game(households.ids()[number])


def wander(engine: Engine, choices: list[int]) -> None:
    """Carry out admissible commands, `go` ones no more often than the others."""
    for choice in choices:
        local = [c for c in engine.admissible if not c.startswith("go")]
        commands = engine.admissible if choice % 3 == 0 else local
        assert engine.step(commands[choice % len(commands)]) != NOTHING_HAPPENS


def snapshot(engine: Engine) -> tuple[object, ...]:
    return engine.state_hash(), engine.won, tuple(engine.admissible), engine.held, frozenset(engine.removed)


WALK = st.lists(st.integers(0, 10_000), max_size=60)


@settings(max_examples=60, deadline=None)
@given(GAMES, DIALECTS, WALK, st.lists(st.text(max_size=40) | st.builds(" ".join, st.lists(st.sampled_from(VERBS)))))
def test_no_text_raises_and_what_is_not_admissible_changes_nothing(
    which: tuple[str, int], dialect: Dialect, walk: list[int], texts: list[str]
) -> None:
    engine = Engine(game(*which), dialect=dialect)
    wander(engine, walk)
    for text in texts:
        before, allowed = snapshot(engine), engine.admissible
        said = engine.step(text)
        assert (said == NOTHING_HAPPENS) == (text.strip() not in allowed)
        assert said != NOTHING_HAPPENS or snapshot(engine) == before


@settings(max_examples=60, deadline=None)
@given(GAMES, DIALECTS, WALK)
def test_the_admissible_list_is_sorted_unique_and_complete(which: tuple[str, int], dialect: Dialect, walk: list[int]) -> None:
    engine = Engine(game(*which), dialect=dialect)
    wander(engine, walk)
    listed = engine.admissible
    assert listed == sorted(set(listed))
    names = [*engine.game.object_names, *engine.game.receptacle_names]
    held = engine.game.object_names[engine.held] if engine.held is not None else names[0]
    tried = [f"{verb} {name}" for verb in ("go to", "open", "close", "examine", "use") for name in names]
    tried += [f"{verb} {held} {word} {name}" for name in names for verb, word in [
        ("take", "from"), ("move", "to"), ("put", "in/on"), ("clean", "with"), ("heat", "with"), ("cool", "with"),
    ]]  # fmt: skip
    tried += [f"slice {name} with {held}" for name in names]
    for command in tried:
        accepted = engine.copy().step(command) != NOTHING_HAPPENS
        assert accepted == (command in listed), command


@settings(max_examples=40, deadline=None)
@given(GAMES, WALK, WALK)
def test_copies_share_no_state(which: tuple[str, int], before: list[int], after: list[int]) -> None:
    engine = Engine(game(*which))
    wander(engine, before)
    was = snapshot(engine)
    for twin in (engine.copy(), copy.copy(engine), copy.deepcopy(engine)):
        assert snapshot(twin) == was
        wander(twin, after)
        assert snapshot(engine) == was
    engine.reset()
    assert snapshot(engine) == snapshot(Engine(engine.game))


@settings(max_examples=40, deadline=None)
@given(GAMES, WALK)
def test_the_same_commands_give_the_same_texts(which: tuple[str, int], walk: list[int]) -> None:
    one, two = Engine(game(*which)), Engine(game(*which))
    for choice in walk:
        command = one.admissible[choice % len(one.admissible)]
        assert one.step(command) == two.step(command)
        assert snapshot(one) == snapshot(two)
