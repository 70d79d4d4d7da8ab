"""Plays with the environment's own expert: demonstrations for a warm start, and an upper bound."""

from __future__ import annotations

from typing import Any

from agentgym.env import Expert
from agentgym.errors import ConfigError, PolicyError
from agentgym.policy import Request, TextPolicy
from agentgym.types import Completion, Sampling


class expert(TextPolicy):
    """Policy that keeps one `env.expert(...)` per episode.

    noise    probability of a random action instead: demonstrations that show how to recover
    planner  let the expert see the true state, where the environment's expert can
    """

    def __init__(self, *, noise: float = 0.0, planner: bool = False) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ConfigError(f"policy.noise is a probability, between 0 and 1; got {noise}")
        self.noise, self.planner = noise, planner
        self._players: dict[str, Expert] = {}

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Return the expert's action. Raises PolicyError without an environment, EnvError when that has no such expert."""
        player = self._players.get(request.episode)
        if player is None:
            player = self._players[request.episode] = self._player(request)
        return Completion(player.act(request.observation, dict(request.info)))

    def _player(self, request: Request) -> Expert:
        if request.env is None:
            raise PolicyError("policy 'expert' needs request.env: it plays with the environment's own expert, in the same process")
        options: dict[str, Any] = {"planner": True} if self.planner else {}
        if self.noise:
            # The expert itself draws the noise: only it knows what it must remember about an action that it did not
            # choose.
            options |= {"noise": self.noise, "seed": request.seed}
        try:
            return request.env.expert(**options)
        except TypeError as e:
            raise PolicyError(f"the expert of {type(request.env).__name__} cannot honour {', '.join(options) or 'being asked'}: {e}") from e

    def release(self, episode: str) -> None:
        """Drop an episode's expert."""
        self._players.pop(episode, None)
