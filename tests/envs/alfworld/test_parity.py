"""Our engine against recordings of the real one: every observation, admissible list and win, in both dialects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.alfworld.engine import Engine
from agentgym.envs.alfworld.game import Game

DIALECTS = {"new": "move", "old": "put"}


@pytest.mark.parametrize(("name", "steps"), [("new", 8921), ("old", 1497), ("cover", 12502)])
def test_every_recorded_step_is_reproduced(name: str, steps: int, alfworld_walks: dict[str, list[dict[str, Any]]], alfworld_data: Path) -> None:
    compared = 0
    for walk in alfworld_walks[name]:
        game = Game.load(alfworld_data / "json_2.1.1" / walk["game"])
        engine = Engine(game, dialect=DIALECTS[walk["dialect"]])
        assert game.task_type == walk["task_type"]
        assert engine.reset() == walk["reset"]["observation"]
        assert engine.admissible == walk["reset"]["admissible_commands"]
        assert not engine.won
        for i, step in enumerate(walk["steps"]):
            where = f"{walk['game']} step {i}: {step['command']!r}"
            assert engine.step(step["command"]) == step["observation"], where
            assert engine.admissible == step["admissible_commands"], where
            assert engine.won == step["won"], where
            compared += 1
    assert compared == steps


def test_names_are_those_of_the_real_engine(alfworld_walks: dict[str, list[dict[str, Any]]], alfworld_data: Path) -> None:
    checked = 0
    for walk in alfworld_walks["new"]:
        if "names" not in walk["reset"]:
            continue
        game = Game.load(alfworld_data / "json_2.1.1" / walk["game"])
        for ids, names in (
            (game.object_ids, game.object_names),
            (game.receptacle_ids, game.receptacle_names),
            (game.location_ids, game.location_names),
        ):
            for key, name in zip(ids, names, strict=True):
                assert name == walk["reset"]["names"][key]
                checked += 1
    assert checked > 100
