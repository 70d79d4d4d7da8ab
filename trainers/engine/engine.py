"""What the policy asks of an engine, be it in this process or a server, and the errors by which an engine says what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentgym.errors import PolicyError


class EngineLost(Exception):
    """The engine is gone or does not answer: it may come back, and another one may do the work meanwhile."""


class EngineRefused(PolicyError):
    """The engine answered, and will not do it: asking again changes nothing."""


@dataclass
class Piece:
    """What came of one request: a whole completion, or what there was when it was aborted for new weights.

    labels  (label of the weights, first token, one after the last)
    """

    tokens: list[int]
    logprobs: list[float]
    finish: Literal["stop", "length", "abort"]
    labels: list[tuple[str, int, int]] = field(default_factory=list)


class Engine(Protocol):
    """One engine. All of it runs in the policy's own event loop; anything may raise EngineLost or EngineRefused."""

    name: str
    max_context: int
    over_http: bool
    started: object  # another one after every start: what runs now knows nothing of earlier pushes

    async def start(self) -> None:
        """Make it ready to be asked, however long that takes; also again after it was lost."""
        ...

    async def generate(self, prompt: Sequence[int], params: dict[str, Any], adapter: str | None) -> Piece:
        """Sample. `params` are those of vllm.SamplingParams; a cancelled call aborts the request."""
        ...

    async def score(self, tokens: Sequence[int], adapter: str | None) -> list[float]:
        """Return the log-probability of each token but the first, given those before it, at temperature 1."""
        ...

    async def pause(self) -> None:
        """Abort what is being sampled and begin nothing new."""
        ...

    async def resume(self, label: str) -> None:
        """Forget cached prefixes, call the weights `label`, and go on."""
        ...

    async def load(self, path: str) -> None:
        """Take the weights in a safetensors file, which all workers can read."""
        ...

    async def adapt(self, name: str, folder: str, old: str | None) -> None:
        """Take LoRA adapters from a folder in PEFT's format, called `name`, and drop those called `old`."""
        ...

    async def call(self, method: str, payload: dict[str, Any] | None) -> Any:
        """Call a step of vLLM's own weight transfer; see transfer.py."""
        ...

    async def close(self) -> None:
        """Let go of it. Safe at any time."""
        ...
