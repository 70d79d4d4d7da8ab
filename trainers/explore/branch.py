"""Episodes from a decision in the middle of an expert's episode: the local rollouts of PivotRL."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from agentgym.errors import ConfigError
from agentgym.types import Task, Trajectory

from .independent import independent


async def branch(
    task: Task,
    run: Callable[[Task, int], Awaitable[Trajectory]],
    *,
    size: int,
    turns: int = 1,
    start: Literal["replay", "context"] = "replay",
    env_reward: bool = False,
) -> list[Trajectory]:
    """Play `size` episodes from the decision that `task` carries (sampler `pivots`); PivotRL, arXiv 2603.21383.

    turns       decisions that the agent makes before the episode is cut; the paper: 1, single-turn
    start       replay: the recorded actions are played again, so that rewards see what an action led to;
                context: from the stored words alone, without an environment
    env_reward  add the environment's reward of these turns to the outcome. Off: the outcome is r_func(s, a) alone

    Raises ConfigError when the task carries no decision, or an option cannot be honoured.
    """
    if turns < 1:
        raise ConfigError(f"explore.turns is {turns}; it is at least 1")
    if start == "context" and (turns > 1 or env_reward):
        raise ConfigError(
            f"explore: start=context has no environment, so there is one turn and no environment's reward; got turns={turns}, "
            f"env_reward={env_reward}. Leave them out, or take start=replay"
        )
    there = task.data.get("start")
    if not isinstance(there, Mapping):
        raise ConfigError(
            f"explore 'branch' begins at a decision, and task {task.id!r} carries none. Tasks that do come from the sampler 'pivots' "
            "(sampler=pivots sampler.file=FILE); `agentgym pivots` makes the file"
        )
    here = {**there, "how": start, "turns": turns, "env_reward": env_reward}
    return await independent(dataclasses.replace(task, data={**task.data, "start": here}), run, size=size)
