"""A cost per step, so that shorter solutions are worth more."""

from __future__ import annotations

from agentgym.types import Trajectory


def steps(trajectory: Trajectory, *, cost: float = 0.01) -> float:
    """Return −cost × number of steps."""
    return -cost * len(trajectory.steps)
