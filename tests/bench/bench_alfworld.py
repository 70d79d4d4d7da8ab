"""Measures our ALFWorld engine against the real one.

    python tests/bench/bench_alfworld.py [--data FOLDER] [--out FILE.json]

Times are wall-clock, the median over games; a step includes the admissible list. The real engine is measured where the
extra `alfworld` is installed, as published and with our two caches. Without --data (or $ALFWORLD_DATA) it plays
generated kitchens of the size of official ones.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _out import write

from agentgym.envs.alfworld.data import open_split
from agentgym.envs.alfworld.engine import Engine
from agentgym.envs.alfworld.game import Game
from agentgym.envs.alfworld.generate import Households
from agentgym.envs.alfworld.oracle import commands
from agentgym.envs.alfworld.textworld import TextWorldEngine, missing_packages

STEPS = 50
REAL_STEPS = {"published": 12, "with caches": 60}


def seconds(act: Callable[[], Any], repeat: int = 1) -> float:
    """Return the wall-clock seconds that one call of `act` takes, the mean over `repeat`."""
    start = time.perf_counter()
    for _ in range(repeat):
        act()
    return (time.perf_counter() - start) / repeat


def kitchens(data: str | None, n: int, split: str) -> list[str]:
    """Return the texts of `n` kitchens with 18 to 24 receptacles."""
    games = open_split(data, split) if data else Households("train", size="full")
    found: list[str] = []
    for task in random.Random(0).sample(games.ids(), len(games.ids())):
        names = games.game(task).receptacle_names
        if "fridge 1" in names and 18 <= len(names) <= 24:
            found.append(games.source(task))
        if len(found) == n:
            break
    return found


def walk(game: Game, length: int) -> list[str]:
    """Return commands that win the game and then wander about."""
    engine = Engine(game)
    found: list[str] = []
    for command in commands(engine, random.Random(0)):
        engine.step(command)
        found.append(command)
        if len(found) == length:
            break
    return found


def measure_ours(texts: list[str]) -> dict[str, float]:
    """Return microseconds of our engine."""
    step, bare, reset, load = [], [], [], []
    for text in texts:
        game = Game.parse(text)
        path = walk(game, STEPS)
        reset.append(seconds(Engine(game).reset, 50))
        bare.append(seconds(functools.partial(play_anew, game, path, listed=False), 5) / STEPS)
        step.append(seconds(functools.partial(play_anew, game, path, listed=True), 5) / STEPS)
        load.append(seconds(functools.partial(Game.parse, text), 5) + seconds(functools.partial(Engine, game), 5))
    times = {"step": step, "step without list": bare, "reset": reset, "load": load}
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def play_anew(game: Game, path: list[str], listed: bool) -> None:
    """Play a walk on a new engine, as every episode of the environment does."""
    play(Engine(game), path, listed)


def play(engine: Engine | TextWorldEngine, path: list[str], listed: bool = True) -> None:
    """Play a walk from the start, with or without the list of admissible commands at every step."""
    engine.reset()
    for command in path:
        engine.step(command)
        if listed:
            _ = engine.admissible


def measure_real(texts: list[str], caches: bool) -> dict[str, float]:
    """Return microseconds of the real engine, on the same walks."""
    engine = TextWorldEngine(caches=caches, timeout=600)
    engine.load(texts[0])  # starts the process, which is not what is measured
    load, step, reset = [], [], []
    for text in texts:
        path = walk(Game.parse(text), REAL_STEPS["with caches" if caches else "published"])
        load.append(seconds(functools.partial(engine.load, text)))
        reset.append(seconds(engine.reset))
        step.append((seconds(functools.partial(play, engine, path)) - reset[-1]) / len(path))
    engine.close()
    times = {"step": step, "reset": reset, "load": load}
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def measure_start(data: str, split: str) -> dict[str, float]:
    """Return seconds until a new process has its first observation of a split, with the cache built before."""
    code = (
        "import time; t = time.perf_counter()\n"
        "from agentgym.envs.alfworld import alfworld\n"
        f"imported = time.perf_counter(); env = alfworld(data={data!r}, split={split!r}); env.reset(seed=0)\n"
        "print(imported - t, time.perf_counter() - imported, len(env.tasks()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    return {"import s": float(out[0]), "open and reset s": float(out[1]), "games": int(out[2])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("ALFWORLD_DATA"), help="folder that holds json_2.1.1")
    parser.add_argument("--split", default="train")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    texts = kitchens(options.data, options.games, options.split)
    result: dict[str, Any] = {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "games": f"{len(texts)} {'official' if options.data else 'generated'} kitchens of 18-24 receptacles",
        "ours us": measure_ours(texts),
    }
    if options.data:
        result["start"] = measure_start(options.data, options.split)
    if missing := missing_packages():
        result["real"] = f"not measured: {', '.join(missing)} not installed"
    else:
        for name in REAL_STEPS:
            measured = measure_real(texts[: 3 if name == "published" else None], caches=name == "with caches")
            result[f"real us, {name}"] = measured
            result[f"times faster than real, {name}"] = {k: v / result["ours us"][k] for k, v in measured.items()}
    write(result, options.out)


if __name__ == "__main__":
    main()
