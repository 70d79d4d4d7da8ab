"""A corridor with a key and a door. Everything a real environment has, in a state space small enough to work out by hand."""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from dataclasses import dataclass
from typing import Any

from agentgym.env import Expert, TextEnv
from agentgym.errors import EnvError, did_you_mean

ROOMS = ("cellar", "kitchen", "pantry", "hall", "study", "library", "gallery", "bedroom", "attic", "tower")
SPLITS = ("train", "test")
LEFT, RIGHT, TAKE, OPEN = "go left", "go right", "take key", "open door"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an episode starts, and where the key and the door are (indices of rooms)."""

    start: int
    key: int
    door: int

    @property
    def steps(self) -> int:
        """The least number of steps to success."""
        return abs(self.start - self.key) + 1 + abs(self.key - self.door) + 1


def layouts(size: int, split: str) -> dict[str, Layout]:
    """Return id → layout: a quarter of all layouts is `test`, the rest is `train`."""
    every = [Layout(*t) for t in itertools.product(range(size), repeat=3) if t[2] not in t[:2]]
    random.Random(size).shuffle(every)
    mine = [at for i, at in enumerate(every) if (i % 4 == 3) == (split == "test")]
    return {f"{size}:{at.start}-{at.key}-{at.door}": at for at in mine}


class toy(TextEnv):
    """Walk along the rooms, take the key, open the door. Opening the door without the key breaks the lock, and the game is lost.

    size       number of rooms, 3 to 10
    max_steps  an episode is truncated after so many steps
    split      "train" or "test"; no layout is in both
    fail_rate  share of episodes that break with an EnvError at the first step, drawn by task, seed and first action, so that the same
               episode breaks again, but not every sibling in a group
    delay      seconds that a step takes; above 0 the environment is `blocking`
    """

    def __init__(self, *, size: int = 6, max_steps: int = 20, split: str = "train", fail_rate: float = 0.0, delay: float = 0.0) -> None:
        super().__init__()
        if not 3 <= size <= len(ROOMS):
            raise EnvError(f"toy: size is {size}, allowed are 3 to {len(ROOMS)}")
        if split not in SPLITS:
            raise EnvError(f"toy: there is no split {split!r}.{did_you_mean(split, SPLITS)} Splits: {', '.join(SPLITS)}")
        if max_steps < 1 or delay < 0 or not 0 <= fail_rate <= 1:
            raise EnvError(
                f"toy: got max_steps={max_steps}, delay={delay}, fail_rate={fail_rate}; max_steps is at least 1, delay at least 0, "
                "fail_rate from 0 to 1"
            )
        self.size, self.max_steps, self.split, self.fail_rate, self.delay = size, max_steps, split, fail_rate, delay
        self.blocking = delay > 0
        self._layouts = layouts(size, split)
        self._running = False

    def tasks(self) -> list[str]:
        """Return the ids of the split's layouts."""
        return list(self._layouts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; the first observation names the task."""
        self.task = self.pick_task(seed, options, self.tasks())
        self.layout = self._layouts[self.task]
        self.room, self.has_key, self.success, self.steps = self.layout.start, False, False, 0
        self._luck = float(self.np_random.random())
        self._running = True
        goal = f"Your task: take the key and open the door in the {ROOMS[self.layout.door]}."
        return f"{goal}\n{self._look()}", self._info(valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act. Anything but an admissible action does nothing and counts as a step."""
        if not self._running:
            raise EnvError("toy: step() outside of an episode: it has not begun, or it has ended; call reset() first")
        time.sleep(self.delay)
        if self.steps == 0 and self._breaks(action):
            self._running = False
            raise EnvError(f"toy: episode of task {self.task!r} broke on purpose (fail_rate={self.fail_rate})")
        self.steps += 1
        action = action.strip().lower()
        valid = action in self._admissible()
        said, lost = self._act(action) if valid else ("Nothing happens.", False)
        terminated = self.success or lost
        truncated = not terminated and self.steps >= self.max_steps
        self._running = not (terminated or truncated)
        seen = said if terminated else f"{said} {self._look()}"
        return seen, float(self.success), terminated, truncated, self._info(valid)

    def expert(self, **options: Any) -> Expert:
        """Return the shortest way to success from wherever the environment is."""
        if options:
            raise EnvError(f"toy: the expert has no option {next(iter(options))!r}; it takes none")
        return _Expert(self)

    def _act(self, action: str) -> tuple[str, bool]:
        """Carry out an admissible action and return what is told and whether the game is lost."""
        if action == TAKE:
            self.has_key = True
            return "You take the key.", False
        if action == OPEN:
            self.success = self.has_key
            return ("The door opens. You win.", False) if self.has_key else ("The lock breaks. You lose.", True)
        self.room += 1 if action == RIGHT else -1
        return f"You {action}.", False

    def _admissible(self) -> list[str]:
        moves = [LEFT] * (self.room > 0) + [RIGHT] * (self.room < self.size - 1)
        return moves + [TAKE] * self._key_here() + [OPEN] * (self.room == self.layout.door)

    def _key_here(self) -> bool:
        return self.room == self.layout.key and not self.has_key

    def _look(self) -> str:
        things = " A key is here." * self._key_here() + " A locked door is here." * (self.room == self.layout.door)
        return f"You are in the {ROOMS[self.room]}.{things}{' You have the key.' * self.has_key}"

    def _info(self, valid: bool) -> dict[str, Any]:
        return {
            "task_id": self.task,
            "task_type": "near" if self.layout.steps <= self.size else "far",
            "state": f"{self.task} {ROOMS[self.room]}{' key' * self.has_key}{' open' * self.success}",
            "admissible": self._admissible() if self._running else [],
            "success": self.success,
            "valid": valid,
        }

    def _breaks(self, action: str) -> bool:
        text = f"{self.task} {self._luck} {action}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8]) / 2**64 < self.fail_rate


class _Expert:
    """Knows the layout. Goes to the key, takes it, goes to the door, opens it."""

    def __init__(self, env: toy) -> None:
        self.env = env

    def act(self, observation: str, info: dict[str, Any]) -> str:
        """Return the next action of a shortest way."""
        env = self.env
        to, then = (env.layout.door, OPEN) if env.has_key else (env.layout.key, TAKE)
        return then if env.room == to else RIGHT if env.room < to else LEFT
