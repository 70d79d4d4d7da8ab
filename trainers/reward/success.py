"""A bonus for success, for environments that give no reward of their own."""

from __future__ import annotations

from agentgym.types import Trajectory


def success(trajectory: Trajectory, *, scale: float = 1.0) -> float:
    """Return `scale` if the episode succeeded, else 0."""
    return scale if trajectory.success else 0.0
