"""What a backend of kind `cluster` is: it places roles (objects in processes of their own), calls their methods, and keeps large values for them.

Two roles are placed: engines (a policy with its model and the agent loop, _engine.py) and environment workers (_envs.py). The third, the trainer,
is the process that asks for them.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, get_type_hints

from agentgym.errors import AgentGymError, ConfigError, LostError, PolicyError, did_you_mean
from agentgym.registry import fit
from agentgym.rollout import in_thread

Section = TypeVar("Section")


@dataclass(frozen=True)
class Engines:
    """Rollout engines: how many, and what each gets. 0: the trainer's process samples."""

    number: int = 0
    cpus: float = 1.0  # whole ones are its torch threads where run.threads does not say
    gpus: float = 0.0  # above 0 its model lies on a GPU


@dataclass(frozen=True)
class Envs:
    """Environment workers: how many, what each gets, and how many environments work in it at a time. 0: environments live where the engine is."""

    number: int = 0
    cpus: float = 1.0
    concurrency: int = 8


@dataclass(frozen=True)
class Trainer:
    """The trainer: 0 is the process that was started, 1 one of its own, more of them share one model (shard)."""

    number: int = 0
    cpus: float = 1.0
    gpus: float = 0.0


def section(kind: type[Section], given: Mapping[str, Any] | None, where: str) -> Section:
    """Return a section of a backend's options. Raises ConfigError on an unknown key, a wrong type, or a number below 0."""
    hints = get_type_hints(kind)
    allowed = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in given or {}:
        if key not in allowed:
            raise ConfigError(f"{where}: unknown key {key!r}.{did_you_mean(str(key), allowed)} Allowed: {', '.join(allowed)}")
    values = {k: fit(v, hints[k], f"{where}.{k}") for k, v in (given or {}).items()}
    for key, value in values.items():
        least = 1 if key == "concurrency" else 0
        if value < least:
            raise ConfigError(f"{where}.{key} is {value}; it is at least {least}")
    return kind(**values)


class Place(Protocol):
    """A role in another process. It travels to other processes, which may call it as well."""

    name: str

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the role, without waiting. What `put` returned may be an argument by itself, and arrives as the value.

        Every role has the method "where": (machine, process id). The future raises what the method raised, or LostError when the process is gone.
        """
        ...

    def kill(self, reason: str) -> None:
        """End the process at once; every call that waits for it raises LostError, with the reason."""
        ...

    def close(self) -> None:
        """Let the role close what it holds, then end its process. For who placed it."""
        ...


class Backend(Protocol):
    """Where roles are placed. A plug-in of kind `cluster`: its constructor takes options only."""

    engines: Engines
    envs: Envs
    trainer: Trainer

    def connect(self) -> None:
        """Find the machines, reserve nothing. Raises ConfigError where that cannot be."""
        ...

    def host(self) -> str:
        """Return an address of the machine that this is called on; a static method, which travels."""
        ...

    def open(self, name: str, *, trainers: bool = False) -> None:
        """Connect, and reserve what engines and workers need, or the trainers; `name` is the run's.

        Raises ConfigError where what the roles ask for is not there.
        """
        ...

    def place(self, name: str, kind: str, index: int, make: Callable[..., Any], *args: Any, restart: bool) -> Place:
        """Start `make(*args)` in a process of its own, without waiting for it.

        kind     "engine", "envs" or "trainer": whose resources it gets;  index: the number among these
        restart  when it dies, begin anew under the same place (without what it knew); else it stays dead
        """
        ...

    def put(self, value: Any) -> Any:
        """Keep a value for the processes and return what stands for it in `call`: it is written once, however many get it."""
        ...

    def free(self, handle: Any) -> None:
        """Forget what `put` kept. Who still asks for it may get None instead."""
        ...

    def close(self) -> None:
        """End whatever is left. Calling it twice is allowed."""
        ...


class Host:
    """A role inside its process: its methods by name; coroutines on the event loop, plain ones in threads of their own."""

    def __init__(self, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._failure: tuple[str, Any, str] | None = None
        try:
            self.role = make(*args)
        except Exception as e:  # whoever calls shall hear why, instead of finding nobody
            self._failure = "error", _fit_to_travel(e), traceback.format_exc()

    async def call(self, method: str, args: tuple[Any, ...]) -> tuple[str, Any, str]:
        """Return ("ok", result, "") or ("error", exception, traceback): an exception is an answer like any other."""
        if method == "where":
            return "ok", (socket.gethostname(), os.getpid()), ""
        if self._failure:
            return self._failure
        try:
            fn = getattr(self.role, method)
            value = await fn(*args) if inspect.iscoroutinefunction(fn) else await in_thread(lambda: fn(*args))
            return "ok", value, ""
        except asyncio.CancelledError:
            return "error", LostError(f"{type(self.role).__name__}.{method} was cut short"), ""
        except Exception as e:
            return "error", _fit_to_travel(e), traceback.format_exc()


def settle(future: Future[Any], answer: tuple[str, Any, str]) -> None:
    """Give the caller what `Host.call` answered."""
    if not future.set_running_or_notify_cancel():
        return
    kind, value, trace = answer
    if kind == "ok":
        future.set_result(value)
        return
    if not isinstance(value, AgentGymError):
        value.add_note(f"In the other process:\n{trace}")
    future.set_exception(value)


def fail(future: Future[Any], error: Exception) -> None:
    """Let the caller know that there will be no answer."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)


def _fit_to_travel(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return PolicyError(f"{type(error).__name__}: {error}")
