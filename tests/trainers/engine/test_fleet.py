"""An engine that dies of what it is asked ends the run with a word; it is not started anew for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentgym.errors import PolicyError
from agentgym.trainers.engine.engine import EngineLost, Piece
from agentgym.trainers.engine.fleet import Fleet, Member


class Dying:
    """Is lost at the first `deaths` requests."""

    name = "the test's engine"

    def __init__(self, deaths: int) -> None:
        self.deaths, self.starts = deaths, 0

    async def start(self) -> None:
        self.starts += 1

    async def generate(self, *args: Any) -> Piece:
        if self.deaths:
            self.deaths -= 1
            raise EngineLost("it stumbled over the prompt")
        return Piece([1], [0.0], "stop", [])


async def asked(engine: Any) -> Piece:
    async def bring(engine: Any) -> None: ...

    fleet = Fleet([Member(engine)], bring, patience=10.0)
    await fleet.start()
    return await fleet.generate("e", [1, 2, 3], {}, lambda: None)


@pytest.mark.filterwarnings("ignore:.*was lost and is started anew.*")
def test_a_turn_that_kills_every_engine_is_an_error() -> None:
    engine = Dying(deaths=100)
    with pytest.raises(PolicyError, match="5 engines in a row were lost while they wrote one turn of 3 tokens; the last: it stumbled"):
        asyncio.run(asked(engine))
    assert engine.deaths == 95


def test_an_engine_that_was_lost_is_said_and_asked_again() -> None:
    engine = Dying(deaths=2)
    with pytest.warns(UserWarning, match="the test's engine was lost and is started anew: it stumbled over the prompt"):
        assert asyncio.run(asked(engine)).tokens == [1]
    assert engine.starts == 3
