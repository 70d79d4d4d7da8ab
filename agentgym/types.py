"""The words that everything else is built from: Task, Message, Completion, Step, Trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Status(StrEnum):
    """How an episode ended. `error` is an infrastructure failure: counted and shown, never trained on, never a reward of 0."""

    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `data` is hidden from the model."""

    id: str
    env: str
    split: str
    seed: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw a completion. `top_p` = 1 and `top_k` = 0 mean no filter; `temperature` = 0 means greedy."""

    max_tokens: int = 32
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Completion:
    """What the policy wrote.

    tokens    sampled ids, the end token included when it was sampled; None from a policy that writes text only
    logprobs  log-probability of each token under the tempered, unfiltered distribution of the sampler (policy vllm: filtered where top_p or top_k
              filter); None if unknown
    version   version of the weights that sampled it; a list of one per token where weights change in flight
    """

    text: str
    tokens: list[int] | None = None
    logprobs: list[float] | None = None
    finish: Literal["stop", "length"] = "stop"
    version: int | list[int] = 0


@dataclass(slots=True)
class Step:
    """One decision of the agent.

    prompt       token ids added to the context since the last step, or a whole new context when `new_segment`
    observation  the text that the agent saw before it acted
    reward       the environment's reward for the action (shaping parts such as an invalid-action penalty are in `penalty`)
    state        key of the state in which the action was taken (anchor groups are built on it)
    """

    prompt: list[int]
    new_segment: bool
    completion: Completion
    action: str
    valid: bool
    observation: str
    reward: float
    state: str
    penalty: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Trajectory:
    """One episode.

    group     key of the group (same task, same start) that it belongs to
    rewards   named reward parts of the whole episode, already weighted
    outcome   return without penalties: what credit methods compare
    error     reason when `status` is error
    """

    task: Task
    group: str
    steps: list[Step] = field(default_factory=list)
    rewards: dict[str, float] = field(default_factory=dict)
    outcome: float = 0.0
    success: bool = False
    status: Status = Status.TRUNCATED
    error: str | None = None
    final_observation: str = ""
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """True when the episode never ended by itself but broke (its numbers mean nothing)."""
        return self.status is Status.ERROR
