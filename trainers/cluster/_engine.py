"""A rollout engine: a role that has a copy of the model, plays episodes with it, and keeps what is finished until it is asked.

Nothing in it waits for the slowest: an episode that waits for its environment leaves the others writing, and a new one begins as soon as there is
a place.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agentgym import registry
from agentgym.config import Config
from agentgym.policy import Policy
from agentgym.rollout import Gym, episode_seed
from agentgym.types import Task, Trajectory

from .._generator import _Dated, _wait_for_closing
from .._helper import Players, broken
from ..model import trainable
from ._compact import compact
from ._envs import RemoteGym
from ._place import Place
from ._weights import Dismantled, assemble, unpack

BEAT = 5.0  # seconds after which an engine that has finished nothing says that it is alive
Episode = tuple[int, str, Task, str, int]  # ticket, name of the player, task, group, seed
Group = tuple[int, str, Task, int]  # serial, key, task, seed


class Engine:
    """The role. `slots`: places for environments in workers; none: environments live here.

    owner    its name at the environment workers
    engines  how many there are: they share the places for environments
    """

    def __init__(self, config: Config, local: bytes, slots: Sequence[Place], owner: str, *, engines: int, threads: int, device: str) -> None:
        registry.add_pickled(local)
        self._config, self._device, self._threads = config, device, threads
        self._slots, self._owner, self._engines = slots, owner, engines
        self._edition = -1  # of the weights: counts what the trainer sent
        self._version = -1
        self._players: _Players | None = None
        self._groups: dict[str, tuple[int, int, _Dated, asyncio.Task[None]]] = {}  # key → serial, bound, policy, work
        self._tasks: set[asyncio.Task[Any]] = set()
        self._outbox: list[tuple[str, bytes]] = []
        self._arrived = asyncio.Event()
        self._newer = asyncio.Condition()

    async def prepare(self, parts: Dismantled) -> None:
        """Take the model's shape, and the weights that training does not change."""
        torch.set_num_threads(self._threads)  # here: it holds for the thread that computes
        model, tokenizer = assemble(parts)
        model = model.to(self._device)
        self._params = trainable(model)
        self._players = _Players(self._config, model, tokenizer, self._slots, self._owner, processes=self._engines)
        async with self._newer:
            self._newer.notify_all()

    async def load(self, edition: int, version: int, flat: np.ndarray | None) -> None:
        """Take weights; completions carry `version` from now on. What is older than what is here, or gone already, is passed over."""
        async with self._newer:  # messages may overtake each other where a large one has to be fetched
            await self._newer.wait_for(lambda: self._players is not None)
        if flat is None or edition <= self._edition:
            return
        players = self._built()
        unpack(flat, self._params)  # the event loop runs nothing else meanwhile: no forward pass sees half of two versions
        self._edition, self._version = edition, version
        players.load(version)
        for key, (serial, bound, policy, work) in list(self._groups.items()):
            if policy.oldest.get(key, version) < version - bound:
                del self._groups[key]
                work.cancel()
                self._tell("stale", serial)  # nobody would learn from it: its place is worth more
        async with self._newer:
            self._newer.notify_all()

    async def play(self, edition: int, jobs: list[Episode]) -> None:
        """Begin episodes, with weights of that edition at least; `news` has them when they are finished."""
        await self._at_least(edition)
        for job in jobs:  # all at once: what is computed together must not depend on timing
            self._spawn(self._episode(*job))

    async def play_groups(self, edition: int, stage: str, jobs: list[Group]) -> None:
        """Begin whole groups of a stage that plays ahead of the trainer."""
        await self._at_least(edition)
        for serial, key, task, seed in jobs:
            agent, _ = self._built().of(stage)
            if not isinstance(agent.policy, _Dated):
                agent.policy = _Dated(agent.policy)
            work = self._spawn(self._group(stage, serial, key, task, seed))
            self._groups[key] = serial, self._built().stages[stage].rollout.max_staleness, agent.policy, work

    async def drop_groups(self) -> None:
        """Give up the groups under way: their stage is over."""
        groups, self._groups = self._groups, {}
        for *_, work in groups.values():
            work.cancel()

    async def news(self) -> tuple[int, list[tuple[str, bytes]]]:
        """Return (episodes that were played again for a lost worker, what was finished) since the last call; it waits a few seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEAT):
                await self._arrived.wait()
        self._arrived.clear()
        found, self._outbox = self._outbox, []
        return (self._players.played_again() if self._players else 0), found

    async def close(self) -> None:
        """Give everything up and close the environments."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._players:
            await self._players.close()
        await asyncio.to_thread(_wait_for_closing)

    # -- one of each ------------------------------------------------------------------------------------------------------------------

    async def _episode(self, ticket: int, name: str, task: Task, group: str, seed: int) -> None:
        try:
            agent, gym = self._built().of(name)
            out = await gym.play(agent, task, group=group, seed=seed)
        except Exception as e:  # always an answer: the other side waits for it
            out = broken(task, group, e)
        self._tell("episode", ticket, compact([out], [task]))

    async def _group(self, stage: str, serial: int, key: str, task: Task, seed: int) -> None:
        c = self._built().stages[stage]
        agent, gym = self._built().of(stage)

        async def episode(task: Task, index: int) -> Trajectory:
            return await gym.play(agent, task, group=key, seed=episode_seed(seed, index))

        try:
            explore = registry.bind("explore", c.explore.name, c.explore.options)
            found = list(await explore(task, episode, size=c.rollout.group_size))
        except Exception as e:
            found = [broken(task, key, e) for _ in range(c.rollout.group_size)]
        finally:
            self._groups.pop(key, None)
            agent.policy.oldest.pop(key, None)  # type: ignore[attr-defined]
        self._tell("group", serial, compact(found, [task] * len(found)))

    # -- what it is made of -----------------------------------------------------------------------------------------------------------

    def _built(self) -> _Players:
        assert self._players is not None, "prepare() comes first"
        return self._players

    async def _at_least(self, edition: int) -> None:
        """Wait for weights: they may be on their way still when what shall be played with them is here."""
        async with self._newer:
            await self._newer.wait_for(lambda: self._edition >= edition)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tell(self, kind: str, number: int, data: bytes = b"") -> None:
        self._outbox.append((kind, pickle.dumps((number, data), protocol=5)))
        self._arrived.set()


class _Players(Players):
    """Players whose environments may be in workers."""

    def __init__(self, config: Config, model: Any, tokenizer: Any, slots: Sequence[Place], owner: str, *, processes: int) -> None:
        super().__init__(config, model, tokenizer, processes=processes)
        self._slots, self._owner, self._gyms = slots, owner, list[Gym]()

    def gym(self, config: Config, split: str) -> Gym:
        """Return a gym with this process's share of the places."""
        found = super().gym(config, split)
        if self._slots:
            places = -(-config.rollout.concurrency // self.processes)
            found = RemoteGym(self._slots, self._owner, split, concurrency=places, timeout=config.rollout.step_timeout)
        self._gyms.append(found)
        return found

    def load(self, version: int) -> None:
        """Tell every policy that its weights changed."""
        for policy in self._policies():
            policy.load(None, version)

    def played_again(self) -> int:
        """Return how many episodes were played again since the last call."""
        remote = [g for g in self._gyms if isinstance(g, RemoteGym)]
        n = sum(g.again for g in remote)
        for g in remote:
            g.again = 0
        return n

    async def close(self) -> None:
        """Close environments and policies."""
        for gym in self._gyms:
            gym.close()
        for policy in self._policies():
            await policy.close()

    def _policies(self) -> list[Policy]:
        """Return every policy once."""
        found = [self.policy, *(agent.policy for agent, _ in self._players.values())]
        return list({id(p): p for p in (x.policy if isinstance(x, _Dated) else x for x in found)}.values())
