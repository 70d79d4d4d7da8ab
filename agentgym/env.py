"""Text environments: a Gymnasium environment whose observations and actions are strings."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from . import GYMNASIUM_IDS, registry
from .errors import EnvError, RegistryError, TaskError, did_you_mean


class UnicodeText(spaces.Space[str]):
    """Any string up to `max_length` characters; samples are drawn from printable ASCII.

    It is no `spaces.Text` on purpose: Gymnasium's asynchronous vector environment copies a Text observation out of shared memory once, at the
    start, and hands out that copy for ever. For this space it raises an error that says `shared_memory=False` instead.
    """

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=str, seed=seed)
        self.max_length = max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Return False: a text has no array form."""
        return False

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a random string of at most 64 characters."""
        letters = np.array([chr(i) for i in range(32, 127)])
        length = int(self.np_random.integers(0, min(64, self.max_length) + 1))
        return "".join(self.np_random.choice(letters, size=length))

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length


class Expert(Protocol):
    """Plays an environment well: one `act` per turn, a new instance per episode."""

    def act(self, observation: str, info: dict[str, Any]) -> str:
        """Return the next action."""
        ...


class TextEnv(gym.Env[str, str]):
    """Base of every agentgym environment.

    The contract (checked by `agentgym.check_env`): `reset(seed=…, options={"task": id})` plays exactly that task, `reset(seed=s)` picks one
    by seed; `step` takes a string and never raises on what a model may write. `info` always has `task_id`, `state` (key of the state the
    agent is in; equal keys meet in one anchor group), `success`, `valid` (the last action was accepted); `admissible` and `task_type` where
    they exist; `keep`, a dict fit for JSON that the step of the trajectory keeps as its info (its `cause`, a word, is what evaluations count
    where an episode did not succeed). An infrastructure failure raises EnvError; it is
    never a reward of 0.

    `blocking` = True: reset and step may wait (a process, a server); the agent loop then runs them in a thread with a time-out.
    """

    metadata: dict[str, Any] = {"render_modes": []}
    observation_space: spaces.Space[str]
    action_space: spaces.Space[str]
    blocking: bool = False

    def __init__(self, *, max_observation: int = 100_000, max_action: int = 100_000) -> None:
        self.observation_space = UnicodeText(max_observation)
        self.action_space = UnicodeText(max_action)

    def tasks(self) -> list[str]:
        """Return the ids of all tasks of this environment's split, in a fixed order."""
        raise EnvError(f"{type(self).__name__} does not list its tasks: define tasks() -> list[str]")

    def expert(self, **options: Any) -> Expert:
        """Return a player for one episode, for demonstrations and as an upper bound."""
        raise EnvError(f"{type(self).__name__} has no expert: define expert(), or use another policy for the warm start")

    def pick_task(self, seed: int | None, options: dict[str, Any] | None, ids: list[str]) -> str:
        """Seed the generator and return the id that `reset(seed, options)` means. Raises TaskError on an unknown id."""
        super().reset(seed=seed)
        extra = set(options or {}) - {"task"}
        if extra:
            raise EnvError(f"reset(options=…) has no key {sorted(extra)[0]!r}; allowed: 'task'")
        if not ids:
            raise TaskError(f"{type(self).__name__} has no tasks in this split")
        wanted = (options or {}).get("task")
        if wanted is None:
            return ids[int(self.np_random.integers(len(ids)))]
        if wanted not in ids:
            raise TaskError(f"there is no task {wanted!r} in this split ({len(ids)} tasks).{did_you_mean(str(wanted), ids)}")
        return str(wanted)


def only(env: str, where: str, holds: bool, **options: object) -> None:
    """Refuse options that would do nothing: those that are not None where `holds` is False. Raises EnvError."""
    for name, value in options.items():
        if value is not None and not holds:
            raise EnvError(f"{env}({name}={value!r}) works only with {where}; leave it out")


def make(name: str, **options: Any) -> TextEnv:
    """Make an environment by its name (`alfworld`), its Gymnasium id, `module:Class` or `./file.py:Class`."""
    target = find_env(name)
    if not callable(target):
        raise EnvError(f"environment {name!r}: {target!r} is no class or function that makes an environment")
    if ":" in name:
        _gymnasium(name.rpartition(":")[2], target)
    allowed, open_ended = options_of(target)
    unknown = [o for o in options if o not in allowed]
    if unknown and not open_ended:
        raise EnvError(f"environment {name!r} has no option {unknown[0]!r}.{did_you_mean(unknown[0], allowed)} Options: {', '.join(allowed)}")
    env = target(**options)
    if not isinstance(env, gym.Env):
        raise EnvError(f"environment {name!r}: {target!r} gave a {type(env).__name__}, not a gymnasium.Env")
    return cast(TextEnv, env)


def find_env(name: str) -> Any:
    """Return what makes the environment of a name, a Gymnasium id of ours, `module:Class` or `./file.py:Class`."""
    if name in GYMNASIUM_IDS:
        name = GYMNASIUM_IDS[name][0]
    elif name.startswith("agentgym/"):
        name = name.removeprefix("agentgym/").removesuffix("-v0")
    return registry.find("env", name)


def options_of(target: Callable[..., Any]) -> tuple[list[str], bool]:
    """Return (options that a class or function takes, whether it takes any other too); `**options` of a class stands for its base's."""
    bound = target.keywords if isinstance(target, functools.partial) else {}
    inner = target.func if isinstance(target, functools.partial) else target
    out: list[str] = []
    steps = [vars(c)["__init__"] for c in inner.__mro__ if "__init__" in vars(c)] if inspect.isclass(inner) else [inner]
    for fn in steps:
        params = inspect.signature(fn).parameters.values()
        out += [p.name for p in params if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name not in ("self", *bound, *out)]
        if not any(p.kind is p.VAR_KEYWORD for p in params):
            return out, False
    return out, True


def register(name: str, env: Callable[..., TextEnv] | str, *, tasks: str | Path | None = None, **options: Any) -> None:
    """Register an environment class (or "module:Class") under `name`, here and as the Gymnasium id `agentgym/<name>-v0`.

    tasks    the task file of a tool environment
    options  further options that are always given
    """
    if not name.replace("-", "").replace("_", "").isalnum():
        raise RegistryError(f"an environment's name has letters, digits, '-' and '_' only; got {name!r}")
    if tasks is not None:
        options["tasks"] = str(Path(tasks).expanduser().resolve())
    if options:
        make_it: Any = env if callable(env) else functools.partial(make, env)
        env = functools.partial(make_it, **options)
    registry.add("env", name, env)
    _gymnasium(name, env)


def _gymnasium(name: str, target: Any) -> None:
    """Let `gymnasium.make("agentgym/<name>-v0")` make it too; what was registered last is made."""
    if re.fullmatch(r"[\w-]+", name):
        gym.registry.pop(f"agentgym/{name}-v0", None)  # without a warning: a notebook's cell is run again and again
        gym.register(f"agentgym/{name}-v0", entry_point=target)
