"""Independent episodes from the same start: the group of GRPO and its kin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentgym.types import Task, Trajectory


async def independent(task: Task, run: Callable[[Task, int], Awaitable[Trajectory]], *, size: int) -> list[Trajectory]:
    """Play `size` episodes of `task` side by side; `run(task, index)` plays one."""
    return list(await asyncio.gather(*(run(task, i) for i in range(size))))
