"""The policy contract: a request goes in, a completion comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .types import Completion, Message, Sampling

if TYPE_CHECKING:
    from .env import TextEnv


@dataclass(slots=True)
class Request:
    """One turn of one episode.

    episode   unique while the episode lives: a policy may keep a cache under it until `release(episode)`
    seed      seeds this turn's draw; the same seed and context give the same completion on the same machine
    tokens    the whole context of the current segment; empty for a policy that works on text
    messages  the same context as chat messages
    env       for policies that are no models (expert, random); a model never looks at it
    """

    episode: str
    seed: int
    tokens: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    observation: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    env: TextEnv | None = None


@runtime_checkable
class Policy(Protocol):
    """Whoever acts. `wants` says what it reads: "tokens" (a renderer must be there), or "text"."""

    wants: str

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Answer one turn. Raises PolicyError when it cannot."""
        ...

    def release(self, episode: str) -> None:
        """Forget what is cached for an episode (it ended, or its context was rebuilt)."""
        ...

    def load(self, weights: Any, version: int) -> None:
        """Take new weights; completions sampled from now on carry `version`."""
        ...

    async def close(self) -> None:
        """Free what the policy holds. Calling it twice is allowed."""
        ...


class TextPolicy:
    """Base of policies without weights: nothing to load, nothing to keep."""

    wants = "text"

    def release(self, episode: str) -> None: ...

    def load(self, weights: Any, version: int) -> None: ...

    async def close(self) -> None: ...
