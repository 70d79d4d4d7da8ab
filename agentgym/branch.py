"""Episodes that begin at a decision in the middle of a recorded one: what PivotRL (arXiv 2603.21383) trains on.

A task says so in `data["start"]`: the turns before the decision, what the agent sees there, and how to get there. Either the recorded actions are
played again in the environment (`how` = "replay"), or there is no environment at all (`how` = "context"): then the stored words are the context,
and the one action is recorded and goes nowhere. Both ways the turns before are history: read by the model, never learned from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from .context import Turn
from .errors import EnvError
from .types import Completion, Task

if TYPE_CHECKING:
    from .env import TextEnv
    from .rollout import Agent, Stream

How = Literal["replay", "context"]


@dataclass(frozen=True, slots=True)
class Start:
    """Where an episode begins. `to_data` and `of` are its plain form, which a file can hold.

    history, now   the turns before the decision; the turn of the decision itself, its completion and action empty
    info           what a stored context cannot ask an environment for: goal, task_type, state
    how            "replay": play the actions of `history` again; "context": no environment
    turns          decisions that the agent makes before the episode is cut
    env_reward     count the environment's reward too; else the rewards of the configuration are the whole outcome
    """

    history: tuple[Turn, ...]
    now: Turn
    info: Mapping[str, str]
    how: How = "replay"
    turns: int = 1
    env_reward: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any], **options: Any) -> Start:
        """Return the start that plain data mean. Raises EnvError when they mean none."""
        try:
            history = tuple(Turn(**t) for t in data["history"])
            return cls(
                history, Turn(**data["now"]), dict(data["info"]), **{n: data[n] for n in ("how", "turns", "env_reward") if n in data} | options
            )
        except (KeyError, TypeError) as e:
            raise EnvError(f"data['start'] is no start of an episode ({type(e).__name__}: {e}); it has the keys history, now and info") from e

    def to_data(self) -> dict[str, Any]:
        """Return the start as plain data, `how` and the like left out: whoever explores decides on those."""
        turns = [{"observation": t.observation, "admissible": t.admissible, "completion": t.completion, "action": t.action} for t in self.history]
        return {"history": turns, "now": {"observation": self.now.observation, "admissible": self.now.admissible}, "info": dict(self.info)}


def start_of(task: Task) -> Start | None:
    """Return where an episode of `task` begins; None: at the environment's own beginning.

    A start without `how` is asleep: a method that plays whole episodes may use the same tasks.
    """
    data = task.data.get("start")
    return Start.of(data) if isinstance(data, Mapping) and "how" in data else None


def needs_env(task: Task) -> bool:
    """Return whether an episode of `task` needs an environment."""
    start = start_of(task)
    return start is None or start.how == "replay"


def judged_by_reward(task: Task) -> bool:
    """Return whether an episode of `task` is a success when its rewards say so: cut after a decision, the environment has no say."""
    start = start_of(task)
    return start is not None and not start.env_reward


def enter(env: TextEnv | None, task: Task) -> tuple[TextEnv, list[Turn], int]:
    """Return (what the loop plays in, the turns before the first decision: complete after reset, calls that reset makes)."""
    start = start_of(task)
    if start is not None and start.how == "context":
        stored = _Stored(start)
        return cast("TextEnv", stored), stored.history, 1
    if env is None:
        raise EnvError(f"task {task.id!r} needs an environment; only a start with how='context' does without one")
    if start is None:
        return env, [], 1
    replay = _Replay(env, start)
    return cast("TextEnv", replay), replay.history, 1 + len(start.history)


def read(agent: Agent, stream: Stream, goal: str, history: Sequence[Turn]) -> None:
    """Let the token stream of an episode read the turns before its first decision; their completions are read, not sampled."""
    for i, turn in enumerate(history):
        messages = agent.messages(goal, list(history[:i]), Turn(turn.observation, turn.admissible))
        stream.prompt(messages)
        stream.answer(messages, Completion(turn.completion))


class _Replay:
    """An environment that is led to a decision by the recorded actions, and left after so many turns."""

    def __init__(self, env: TextEnv, start: Start) -> None:
        self._env, self._start = env, start
        self.unwrapped = env.unwrapped
        self.history: list[Turn] = []
        self._left = start.turns

    def reset(self, *, seed: int | None, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """Play the recorded actions. Raises EnvError where the environment does not answer as it did."""
        observation, info = self._env.reset(seed=seed, options=options)
        goal = info.get("goal", observation)
        for turn in self._start.history:
            self._compare(turn.observation, observation)
            self.history.append(Turn(observation, info.get("admissible"), turn.completion, turn.action))
            observation, _, terminated, truncated, info = self._env.step(turn.action)
            if terminated or truncated:
                raise EnvError(f"replay: {self._where()} ended the episode, though a recorded decision comes later: {_short(observation)}")
        self._compare(self._start.now.observation, observation)
        return observation, {**info, "goal": goal}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one decision; the last of them ends the episode."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._left -= 1
        truncated = truncated or (not terminated and self._left == 0)
        return observation, float(reward) if self._start.env_reward else 0.0, terminated, truncated, info

    def _compare(self, recorded: str, now: str) -> None:
        if recorded != now:
            raise EnvError(
                f"replay: after {self._where()} the environment shows {_short(now)}, recorded was {_short(recorded)}. The environment differs from "
                "the recorded one (its options, its version), or it is not deterministic: then use start=context"
            )

    def _where(self) -> str:
        n = len(self.history)
        return f"action {n} of {len(self._start.history)} ({self.history[-1].action!r})" if n else "reset"


class _Stored:
    """A decision without an environment: what was seen is stored, what is done is only recorded."""

    blocking = False

    def __init__(self, start: Start) -> None:
        self._start = start
        self.unwrapped = self
        self.history = list(start.history)

    def reset(self, *, seed: int | None, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """Return what was seen at the decision."""
        first = (*self.history, self._start.now)[0].observation
        return self._start.now.observation, {"goal": first, **self._start.info, "admissible": self._start.now.admissible}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """End the episode: nobody can say what the action would have done."""
        return "", 0.0, False, True, {}


def _short(text: str, most: int = 200) -> str:
    return repr(text if len(text) <= most else text[:most] + "…")
