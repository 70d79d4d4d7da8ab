"""Plans a short command sequence from the true state: the expert's strategy, without its search."""

from __future__ import annotations

from agentgym.errors import EnvError

from .engine import Engine
from .expert import Expert
from .game import Game

_LIMIT = 100


def plan(start: Engine | Game) -> list[str]:
    """Return commands that win from the state of an engine (which is left as it is) or from the start of a game.

    Near-shortest: it picks the objects and receptacles that cost the fewest commands, one decision after the other.
    Raises EnvError when the strategy finds no way to win.
    """
    engine = start.copy() if isinstance(start, Engine) else Engine(start)
    expert = Expert(planner=True)
    commands: list[str] = []
    while not engine.won:
        if len(commands) == _LIMIT:
            raise EnvError(f"{engine.game.source}: no plan within {_LIMIT} commands; the first are {commands[:10]}")
        commands.append(expert.act("", {"admissible": engine.admissible, "engine": engine}))
        engine.step(commands[-1])
    return commands
