"""Plays what it is told: a list of actions, or a function of the request. For tests, baselines and replays."""

from __future__ import annotations

from collections.abc import Callable

from agentgym.errors import ConfigError
from agentgym.policy import Request, TextPolicy
from agentgym.types import Completion, Sampling


class scripted(TextPolicy):
    """Policy that plays `actions` in order in every episode and then from the start again; in code it may be a function of the request."""

    def __init__(self, *, actions: list[str] | Callable[[Request], str]) -> None:
        if not callable(actions) and not actions:
            raise ConfigError("policy.actions is empty: 'scripted' needs at least one action")
        self.actions = actions
        self._turns: dict[str, int] = {}

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Return the next action of the script."""
        if callable(self.actions):
            return Completion(self.actions(request))
        turn = self._turns.get(request.episode, 0)
        self._turns[request.episode] = turn + 1
        return Completion(self.actions[turn % len(self.actions)])

    def release(self, episode: str) -> None:
        """Forget how far an episode was."""
        self._turns.pop(episode, None)
