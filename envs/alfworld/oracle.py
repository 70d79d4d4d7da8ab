"""Plays the same commands on our engine and on the real one, and compares every observation, command list and win.

`agentgym check alfworld --oracle N` runs it; it needs the extra `alfworld`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import track
from rich.table import Table

from agentgym.errors import EnvError

from .data import open_split
from .engine import Dialect, Engine
from .game import Game
from .generate import Households
from .households import SIZES
from .planner import plan
from .textworld import TextWorldEngine

_SPLIT = "valid_seen"


@dataclass
class Difference:
    """The first step of a game at which the engines disagree; what follows would only repeat it."""

    task: str
    step: int
    command: str
    what: str
    ours: object
    real: object

    def __str__(self) -> str:
        return f"{self.task}, step {self.step}, {self.command!r}: {self.what}\n  ours {self.ours!r}\n  real {self.real!r}"


@dataclass
class Report:
    """How far the engines agree. `wins` are games in which the goal was reached on the way."""

    games: int = 0
    steps: int = 0
    wins: int = 0
    differences: list[Difference] = field(default_factory=list)


def compare(
    games: Iterable[tuple[str, str]],
    n_steps: int = 60,
    seed: int = 0,
    *,
    dialect: Dialect = "move",
    caches: bool = True,
    timeout: float = 300.0,
) -> Report:
    """Play each game, given as (id, text of its file), for `n_steps` commands on both engines.

    The walk is the planner's way to the goal and then random commands, some of them malformed. `caches`: see
    TextWorldEngine; they are part of what is compared.
    """
    report = Report()
    real = TextWorldEngine(dialect=dialect, caches=caches, timeout=timeout)
    try:
        for task, text in games:
            _compare_game(task, text, n_steps, random.Random(f"{seed} {task}"), real, report)
    finally:
        real.close()
    return report


def _compare_game(task: str, text: str, n_steps: int, rng: random.Random, real: TextWorldEngine, report: Report) -> None:
    ours = Engine(Game.parse(text, source=task), dialect=real.dialect)
    walk = commands(ours, rng)
    command, said, truly = "(start)", ours.reset(), real.load(text, source=task)
    report.games += 1
    won = False
    for step in range(n_steps + 1):
        if step:
            command = next(walk)
            said, truly = ours.step(command), real.step(command)
            report.steps += 1
        won = won or ours.won
        seen = {
            "observation": (said, truly),
            "admissible": (ours.admissible, real.admissible),
            "won": (ours.won, real.won),
        }
        wrong = [Difference(task, step, command, what, a, b) for what, (a, b) in seen.items() if a != b]
        if wrong:
            report.differences += wrong[:1]
            break
    report.wins += won


def commands(engine: Engine, rng: random.Random) -> Iterator[str]:
    """Yield a way to the goal, then random commands without end: the verb first, or nearly all would be `go`."""
    with suppress(EnvError):  # a game that our planner cannot win is still worth comparing
        yield from plan(engine)
    while True:
        verbs = sorted({command.partition(" ")[0] for command in engine.admissible})
        verb = rng.choice(verbs)
        command = rng.choice([c for c in engine.admissible if c.partition(" ")[0] == verb])
        yield _spoilt(command, rng) if rng.random() < 0.1 else command


def _spoilt(command: str, rng: random.Random) -> str:
    """Return a command as a model may get it wrong, or nearly right."""
    return rng.choice(
        [
            command.upper(),
            f"  {command} ",
            f"{command}.",
            command.replace(" ", "  "),
            command.partition(" ")[0],
            "",
            f"{command}\n",
        ]
    )


def main(n: int, data: str | None, dialect: Dialect, seed: int) -> int:
    """Compare the engines on `n` games and print a table; return 1 if any step differs, else 0.

    The games are drawn by `seed` from valid_seen below `data` or $ALFWORLD_DATA, else generated ones of all sizes.
    """
    games, origin = _draw(n, data or os.environ.get("ALFWORLD_DATA"), dialect, seed)
    start = time.perf_counter()
    shown = track(games, description="playing on both engines", console=Console(stderr=True), transient=True)
    report = compare(shown, seed=seed, dialect=dialect)
    table = Table("games", "origin", "dialect", "steps compared", "games won", "steps that differ", "seconds")
    row = (report.games, origin, dialect, report.steps, report.wins, len(report.differences))
    table.add_row(*map(str, row), f"{time.perf_counter() - start:.0f}")
    console = Console()
    console.print(table)
    for difference in report.differences:
        console.print(str(difference), markup=False, highlight=False)
    return 1 if report.differences else 0


def _draw(n: int, data: str | None, dialect: Dialect, seed: int) -> tuple[list[tuple[str, str]], str]:
    rng = random.Random(seed)
    if data is not None:
        official = open_split(data, _SPLIT)
        ids = official.ids()
        return [(i, official.source(i)) for i in rng.sample(ids, min(n, len(ids)))], _SPLIT
    if dialect != "move":
        raise EnvError("generated games hold no rules of the older dialect; compare it on official games: give --data")
    drawn = []
    for k in range(n):
        households = Households(_SPLIT, size=list(SIZES)[k % len(SIZES)])
        task = rng.choice(households.ids())
        drawn.append((task, households.source(task)))
    return drawn, "generated"
