"""Draws an admissible action uniformly: the lower bound of every benchmark."""

from __future__ import annotations

import random as _random

from agentgym.errors import PolicyError
from agentgym.policy import Request, TextPolicy
from agentgym.types import Completion, Sampling


class random(TextPolicy):
    """Policy that draws from `info["admissible"]`; the draw depends on `seed` and the request's own seed alone."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Return an admissible action. Raises PolicyError where the environment lists none."""
        admissible = request.info.get("admissible")
        if not admissible:
            env = type(request.env).__name__ if request.env is not None else "the environment"
            raise PolicyError(
                f"policy 'random' needs info['admissible'], and {env} does not list its actions "
                f"(info has: {', '.join(sorted(request.info)) or 'nothing'}); use another policy, or offer the list in the environment"
            )
        return Completion(_random.Random(f"{self.seed}:{request.seed}").choice(list(admissible)))
