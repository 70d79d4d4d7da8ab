"""Every task once per epoch, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from agentgym.errors import CheckpointError, ConfigError

T = TypeVar("T")  # a Task, or its id


class uniform(Generic[T]):  # a plug-in's class carries the plug-in's name
    """Draw tasks without replacement; a new epoch begins, newly shuffled, when all have been drawn."""

    def __init__(self, tasks: Sequence[T], seed: int, *, shuffle: bool = True) -> None:
        """`tasks` in a fixed order; `seed` decides the shuffles. Raises ConfigError when there is no task."""
        if not tasks:
            raise ConfigError("the sampler got no tasks; check the split and the filters of the task set")
        self.tasks, self.seed, self.shuffle = list(tasks), seed, shuffle
        self.epoch = self.drawn = 0
        self._order = self._shuffled()

    def take(self, n: int) -> list[T]:
        """Return the next n tasks."""
        out: list[T] = []
        while len(out) < n:
            if self.drawn == len(self.tasks):
                self.epoch, self.drawn = self.epoch + 1, 0
                self._order = self._shuffled()
            found = self._order[self.drawn : self.drawn + n - len(out)]
            self.drawn += len(found)
            out += [self.tasks[i] for i in found]
        return out

    def observe(self, groups: Any) -> None:
        """Nothing to learn from results."""

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        return {"epoch": self.epoch, "drawn": self.drawn, "seed": self.seed, "tasks": self._fingerprint()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken. Raises CheckpointError when tasks or seed are not the same."""
        if (state["tasks"], state["seed"]) != (self._fingerprint(), self.seed):
            raise CheckpointError(
                f"the checkpoint's sampler had other tasks or another seed ({state['seed']}, now {self.seed}; {len(self.tasks)} tasks now): "
                "resume with the same task set, or start a new run"
            )
        self.epoch, self.drawn = state["epoch"], state["drawn"]
        self._order = self._shuffled()

    def _shuffled(self) -> list[int]:
        n = len(self.tasks)
        return np.random.default_rng([self.seed, self.epoch]).permutation(n).tolist() if self.shuffle else list(range(n))

    def _fingerprint(self) -> str:
        ids = [str(getattr(t, "id", t)) for t in self.tasks]
        return hashlib.sha256("\0".join(ids).encode()).hexdigest()[:16]
