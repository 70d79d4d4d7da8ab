"""Environments in processes of their own: for those that block, hold a lot of memory, or must live on another machine than the model.

A worker lets only so many work at a time. To the agent loop a remote environment is one that blocks: its calls wait in threads, and whoever
writes meanwhile goes on writing.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from agentgym import registry
from agentgym.config import Config
from agentgym.env import Expert, TextEnv
from agentgym.errors import EnvError, LostError
from agentgym.rollout import Gym, in_thread
from agentgym.types import Task, Trajectory

from .. import setup
from ._place import Place

_ATTEMPTS = 4  # at an episode whose worker was lost
_PAUSE = 0.5  # seconds before the second one, doubled each time: a worker needs some to come back


class EnvWorker:
    """A role: environments by key, and what is called in them.

    owner  whoever made an environment; an engine that died is told about by `forget`, and its environments are closed
    """

    def __init__(self, config: Config, local: bytes, concurrency: int) -> None:
        registry.add_pickled(local)
        self._config, self._concurrency = config, concurrency
        self._free: asyncio.Semaphore | None = None
        self._envs: dict[str, tuple[str, Any]] = {}  # key → (owner, environment)
        self._experts: dict[str, Any] = {}  # key of its environment → the expert of the episode there
        self._running: dict[str, asyncio.Future[Any]] = {}

    async def make(self, owner: str, split: str) -> str:
        """Make an environment and return its key."""
        key = secrets.token_hex(8)  # also new after a restart: nobody may act in an environment that is not theirs
        env = await self._work(key, setup.make_env(self._config, split))
        self._envs[key] = owner, env
        return key

    async def call(self, key: str, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a method of an environment, as soon as there is room. Raises LostError when this worker does not know it."""
        return await self._work(key, functools.partial(getattr(self._find(key), method), *args, **options))

    async def expert(self, key: str, options: dict[str, Any]) -> None:
        """Make an expert for the episode that an environment is in; the one before it is forgotten."""
        self._experts[key] = self._find(key).expert(**options)

    async def act(self, key: str, observation: str, info: dict[str, Any]) -> str:
        """Return what that expert does."""
        self._find(key)
        return str(self._experts[key].act(observation, info))

    async def release(self, key: str) -> None:
        """Close an environment; a call that hangs in it takes no room any longer."""
        _, env = self._envs.pop(key, ("", None))
        self._experts.pop(key, None)
        if (running := self._running.pop(key, None)) is not None:
            running.cancel()
        if env is not None:
            await in_thread(env.close)

    async def forget(self, owner: str) -> None:
        """Close all environments of an owner."""
        await asyncio.gather(*(self.release(k) for k, (who, _) in list(self._envs.items()) if who == owner), return_exceptions=True)

    async def busy(self) -> int:
        """Return how many calls are at work now."""
        return len(self._running)

    async def close(self) -> None:
        """Close everything."""
        await asyncio.gather(*(self.release(k) for k in list(self._envs)), return_exceptions=True)

    def _find(self, key: str) -> Any:
        if key not in self._envs:
            raise LostError("the environment worker was restarted and does not know this environment any longer")
        return self._envs[key][1]

    async def _work(self, key: str, fn: Callable[[], Any]) -> Any:
        """Run `fn` in a thread, one of `concurrency` at a time; the place is free again when it is done, or given up."""
        if self._free is None:  # made on the event loop
            self._free = asyncio.Semaphore(self._concurrency)
        async with self._free:
            self._running[key] = work = asyncio.ensure_future(in_thread(fn))
            try:
                return await work
            finally:
                self._running.pop(key, None)


class RemoteEnv(TextEnv):
    """An environment in a worker; it is made there at the first reset. `slot` goes back to `free` when it is closed."""

    blocking = True

    def __init__(self, slot: Place, free: deque[Place], owner: str, split: str) -> None:
        super().__init__()
        self._slot, self._free, self._owner, self._split = slot, free, owner, split
        self._key: str | None = None
        self._closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode in the worker."""
        self._begin()
        return self._call("reset", seed=seed, options=options)  # type: ignore[no-any-return]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act in the worker."""
        return self._call("step", action)  # type: ignore[no-any-return]

    def tasks(self) -> list[str]:
        """Return the task ids of the split."""
        self._begin()
        return self._call("tasks")  # type: ignore[no-any-return]

    def expert(self, **options: Any) -> Expert:
        """Return a player whose other half sits in the worker, beside the environment."""
        if self._key is None:
            raise EnvError("the expert of a remote environment plays an episode that has begun: call reset() first")
        self._ask("expert", self._key, options)
        return _RemoteExpert(self._slot, self._key)

    def close(self) -> None:
        """Let the worker close it, without waiting: it may hang."""
        if self._closed:
            return
        self._closed = True
        self._free.append(self._slot)
        if self._key is not None:
            self._slot.call("release", self._key)

    def _begin(self) -> None:
        if self._key is None:
            self._key = self._ask("make", self._owner, self._split)
        if self._closed:  # the agent loop gave up while it was made
            self._slot.call("release", self._key)

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        return self._ask("call", self._key, method, args, options)

    def _ask(self, method: str, *args: Any) -> Any:
        answer: Future[Any] = self._slot.call(method, *args)
        return answer.result()


class _RemoteExpert:
    def __init__(self, slot: Place, key: str) -> None:
        self._slot, self._key = slot, key

    def act(self, observation: str, info: dict[str, Any]) -> str:
        return str(self._slot.call("act", self._key, observation, info).result())


class RemoteGym(Gym):
    """A gym whose environments are in workers: one per slot at most. An episode whose worker was lost is played again, with the same seed."""

    def __init__(self, slots: Sequence[Place], owner: str, split: str, *, concurrency: int, timeout: float) -> None:
        free = deque(slots)
        super().__init__(lambda: RemoteEnv(free.popleft(), free, owner, split), concurrency=min(concurrency, len(slots)), timeout=timeout)
        self.again = 0  # episodes that were played once more

    async def play(self, agent: Any, task: Task, *, group: str, seed: int) -> Trajectory:
        """Play one episode; LostError is its error only when several workers in a row were lost over it."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.again += 1
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
            out = await super().play(agent, task, group=group, seed=seed)
            if not (out.failed and str(out.error).startswith(f"{LostError.__name__}:")):
                break
        return out


def deal_slots(workers: Sequence[Place], concurrency: int, who: int, of: int) -> list[Place]:
    """Return the slots of one of `of` processes that play: every worker has `concurrency`, dealt in turn, so that all use all workers."""
    return [w for _ in range(concurrency) for w in workers][who::of]
