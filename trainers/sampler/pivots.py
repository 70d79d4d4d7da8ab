"""Decisions that are worth training on, from the file that `agentgym pivots` wrote: every one once per epoch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.branch import Start
from agentgym.errors import ConfigError, DataError, EnvError
from agentgym.store import read_lines
from agentgym.types import Task

from .uniform import uniform


class pivots(uniform[Task]):
    """Draw pivots without replacement (PivotRL, arXiv 2603.21383); a new epoch begins, newly shuffled, when all have been drawn.

    file  what `agentgym pivots` wrote. A pivot is drawn as its task, with the decision in `data["start"]` and what the expert did in
          `data["expected"]`; explore `branch` begins there.
    """

    def __init__(self, tasks: Sequence[Any], seed: int, *, file: str = "", shuffle: bool = True) -> None:
        """`tasks`: the training split (tasks or ids). Raises ConfigError without a usable file, or when a pivot's task is not among them."""
        if not file:
            raise ConfigError("sampler 'pivots' needs its file: sampler.file=FILE. `agentgym pivots TASK --trajectories … --policy …` makes one")
        found = [pivot_task(row, f"{file}, line {i}") for i, row in enumerate(read_lines(Path(file).expanduser()), 1)]
        if not found:
            raise ConfigError(f"{file} holds no pivot: profile more trajectories, or with another policy (agentgym pivots)")
        allowed = {str(getattr(t, "id", t)) for t in tasks}
        strange = sorted({t.id for t in found} - allowed)
        if strange:
            raise ConfigError(
                f"{file}: {len(strange)} task(s) of its pivots are not in the training split, e.g. {strange[0]!r}. Held-out tasks are never trained "
                "on: make the pivots with this task set (env options and splits.train)"
            )
        super().__init__(found, seed, shuffle=shuffle)

    def _fingerprint(self) -> str:
        """One task has many pivots: what tells them apart is the way there and the expected action."""
        ways = [[t.id, t.seed, [h["action"] for h in t.data["start"]["history"]], t.data["expected"]["action"]] for t in self.tasks]
        return hashlib.sha256(json.dumps(ways).encode()).hexdigest()[:16]


def pivot_task(row: dict[str, Any], where: str) -> Task:
    """Return the task of a row of a pivot file. Raises DataError that names the place."""
    try:
        Start.of(row["start"])
        data = {**row["task"].get("data", {}), "start": row["start"], "expected": row["expected"]}
        str(row["expected"]["action"])
        return Task(**{**row["task"], "data": data})
    except (KeyError, TypeError, AttributeError, EnvError) as e:
        raise DataError(f"{where} is no pivot ({type(e).__name__}: {e}); the file is one that `agentgym pivots` wrote") from e
