"""ALFWorld as a Gymnasium environment over text: official or generated games, our engine or the real one."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

from agentgym.env import TextEnv, only
from agentgym.errors import DataError, EnvError, did_you_mean

from .data import OFFICIAL_COUNTS, Games, Manifest, manifest, open_split
from .engine import Dialect, Engine
from .expert import Expert
from .game import Game
from .generate import Households
from .pddl import TASK_TYPES
from .texts import NOTHING_HAPPENS
from .textworld import TextWorldEngine

Split = Literal["train", "valid_seen", "valid_unseen"]


class GameSet(Protocol):
    """The games of one split, whatever their origin."""

    def ids(self) -> list[str]: ...
    def game(self, id: str, /) -> Game: ...
    def source(self, id: str, /) -> str: ...
    def task_type(self, id: str, /) -> str: ...
    def __hash__(self) -> int: ...


class ALFWorldEnv(TextEnv):
    """Household tasks in text: go, open, take, clean, heat, cool, use, put; one goal per game.

    data        None: generated games; else the folder that holds json_2.1.1 (may say "$ALFWORLD_DATA")
    split       train | valid_seen | valid_unseen
    dialect     move (alfworld >= 0.4: "move x to y", `help`) or put (older: "put x in/on y"), whatever the file has
    engine      fast (ours) or textworld (the real one, in its own process; needs the extra `alfworld`)
    max_steps   the episode is truncated in the step that reaches it; None: never
    state       what `info["state"]` is: the observation, or a hash of the true state (fast engine only)
    scale       reward of success; every other step gives 0
    task_types  keep only games of these types
    size, n     generated games only: mini | small | medium | full, and how many
    caches, timeout   real engine only: speed-ups that keep its output, and seconds until a call is given up

    `info` at reset and step: task_id, task_type, goal (the sentence), state, admissible, success, valid (the command was admissible).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        split: Split = "train",
        dialect: Dialect = "move",
        engine: Literal["fast", "textworld"] = "fast",
        max_steps: int | None = 50,
        state: Literal["observation", "hash"] = "observation",
        scale: float = 1.0,
        task_types: Sequence[str] | None = None,
        size: str | None = None,
        n: int | None = None,
        caches: bool | None = None,
        timeout: float | None = None,
        render_mode: Literal["ansi"] | None = None,
    ) -> None:
        super().__init__(max_observation=10_000)
        self.render_mode = render_mode
        self._last = ""
        _one_of("split", split, OFFICIAL_COUNTS)
        _one_of("dialect", dialect, get_args(Dialect))
        _one_of("engine", engine, ("fast", "textworld"))
        _one_of("state", state, ("observation", "hash"))
        if max_steps is not None and max_steps < 1:
            raise EnvError(f"ALFWorldEnv(max_steps={max_steps}): it is at least 1, or None for no limit")
        real = engine == "textworld"
        only("ALFWorldEnv", "data=None (generated games)", data is None, size=size, n=n)
        only("ALFWorldEnv", "engine='textworld'", real, caches=caches, timeout=timeout)
        only("ALFWorldEnv", "engine='fast'", not real, state=None if state == "observation" else state)
        self.split, self.dialect, self.max_steps, self.scale = split, dialect, max_steps, scale
        self.blocking = real
        self._hash = state == "hash"
        self._games: GameSet = _households(split, size or "mini", n) if data is None else open_split(data, split)
        self._ids = _ids(self._games, None if task_types is None else tuple(task_types))
        self._real = TextWorldEngine(dialect=dialect, caches=caches is not False, timeout=timeout or 120.0) if real else None
        self._engine: Engine | TextWorldEngine | None = None
        self._playing = False
        self._steps = 0
        self._task = self._type = ""

    def tasks(self) -> list[str]:
        """Return the ids of all tasks of the split, in a fixed order."""
        return list(self._ids)

    def manifest(self) -> Manifest:
        """Return the ids with their sha256 and, for a whole official split, the count of the complete download."""
        whole = isinstance(self._games, Games) and len(self._ids) == len(self._games.ids())
        official = OFFICIAL_COUNTS[self.split] if whole else None
        return manifest(self.split, self.tasks(), official)

    def expert(self, *, planner: bool = False, seed: int = 0, noise: float = 0.0) -> _Player:  # type: ignore[override]
        """Return a player for one episode. With `planner` it sees the true state (fast engine only)."""
        if planner and self._real is not None:
            raise EnvError("expert(planner=True) reads the true state, which engine='textworld' does not give")
        return _Player(self, Expert(planner=planner, seed=seed, noise=noise))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start the game `options={"task": id}`, or one picked by `seed` or the environment's own generator."""
        self._playing = False
        wanted = (options or {}).get("task")
        if isinstance(self._games, Games) and wanted in self._games.damaged:
            raise DataError(f"the game {wanted!r} is damaged: {self._games.damaged[wanted]}")
        self._task = self.pick_task(seed, options, self._ids)
        self._type = self._games.task_type(self._task)
        if self._real is not None:
            self._engine = self._real
            observation = self._real.load(self._games.source(self._task), source=self._task)
        else:
            self._engine = Engine(_game(self._games, self._task), dialect=self.dialect)
            observation = self._engine.reset()
        self._steps = 0
        self._playing = True
        self._goal = observation.partition("Your task is to: ")[2].strip()
        return observation, self._info(self._engine, observation, valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command. A command that is not admissible answers "Nothing happens." and counts as a step."""
        if not isinstance(action, str):
            raise EnvError(f"ALFWorldEnv.step takes a command as text, got {type(action).__name__}: {action!r}")
        if self._engine is None or not self._playing:
            raise EnvError("ALFWorldEnv.step: no episode is going on (it ended or was never begun); call reset() first")
        observation = self._engine.step(action)
        self._steps += 1
        terminated = self._engine.won
        truncated = not terminated and self.max_steps is not None and self._steps >= self.max_steps
        self._playing = not (terminated or truncated)
        info = self._info(self._engine, observation, valid=observation != NOTHING_HAPPENS)
        return observation, self.scale * terminated, terminated, truncated, info

    def render(self) -> str:
        """Return the last observation."""
        return self._last

    def close(self) -> None:
        """End the real engine's process, if there is one."""
        self._playing = False
        if self._real is not None:
            self._real.close()

    def _info(self, engine: Engine | TextWorldEngine, observation: str, *, valid: bool) -> dict[str, Any]:
        self._last = observation
        return {
            "task_id": self._task,
            "task_type": self._type,
            "goal": self._goal,
            "state": engine.state_hash() if self._hash and isinstance(engine, Engine) else observation,
            "admissible": list(engine.admissible),
            "success": engine.won,
            "valid": valid,
        }


class _Player:
    """The expert at one environment: it hands the planner the true state, which `info` does not carry."""

    def __init__(self, env: ALFWorldEnv, expert: Expert) -> None:
        self._env = env
        self._expert = expert

    def act(self, observation: str, info: dict[str, Any]) -> str:
        """Return the next command."""
        if self._expert.planner:
            info = {**info, "engine": self._env._engine}
        return self._expert.act(observation, info)


def _one_of(option: str, got: object, allowed: Sequence[str] | dict[str, int]) -> None:
    if got not in allowed:
        close = did_you_mean(str(got), allowed)
        raise EnvError(f"ALFWorldEnv({option}={got!r}): it is one of {', '.join(allowed)}.{close}")


# Instances share these (as they share what `open_split` returns): hundreds of environments of one split read it once.
# What they hold never changes.


@functools.lru_cache(maxsize=16)
def _households(split: str, size: str, n: int | None) -> Households:
    return Households(split, size=size, n=n)


@functools.lru_cache(maxsize=64)
def _ids(games: GameSet, task_types: tuple[str, ...] | None) -> list[str]:
    ids = games.ids()
    if task_types is None:
        return ids
    for task_type in task_types:
        _one_of("task_types", task_type, tuple(TASK_TYPES.values()))
    return [i for i in ids if games.task_type(i) in task_types]


@functools.lru_cache(maxsize=512)
def _game(games: GameSet, task: str) -> Game:
    return games.game(task)
