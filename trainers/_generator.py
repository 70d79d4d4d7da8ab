"""The other side of asynchronous rollouts: a process that plays whole groups with a copy of the weights of its own.

The trainer publishes its weights in shared memory; the copy is refreshed between two decoding ticks, under a lock, so that no forward pass
ever sees half of one version and half of another. The key-value cache is computed anew, so every log-probability is exactly that of the
version that the token carries, for its whole context.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import pickle
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agentgym import registry
from agentgym.config import Config
from agentgym.policy import Policy, Request
from agentgym.rollout import episode_seed
from agentgym.types import Completion, Sampling, Task, Trajectory

from ._helper import Players, begin, broken
from .model import trainable

BEAT = 5.0  # seconds between two signs of life
_GRACE = 10.0  # seconds in which a generator without a trainer may close its environments


def generators(config: Config) -> int:
    """Return how many processes play ahead: all of `run.workers` but the trainer's own, one at least."""
    return max(1, config.run.workers - 1)


class Published:
    """Weights for other processes: one flat buffer in shared memory, and the version that it holds.

    Only those who hold a lock that excludes each other may call `write` and `read`.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        size = max((stop for _, _, stop in places(params)), default=0)
        self._flat = torch.zeros(size, dtype=torch.uint8).share_memory_()
        self._version = torch.zeros(1, dtype=torch.int64).share_memory_()

    @property
    def version(self) -> int:
        """Return the version that was written last."""
        return int(self._version)

    def write(self, params: Sequence[Tensor], version: int) -> None:
        """Put weights in."""
        for p, place in self._each(params):
            place.copy_(p.detach())
        self._version.fill_(version)

    def read(self, params: Sequence[Tensor]) -> int:
        """Copy the weights into `params` and return their version."""
        for p, place in self._each(params):
            p.detach().copy_(place)
        return self.version

    def _each(self, params: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        for p, start, stop in places(params):
            yield p, self._flat[start:stop].view(p.dtype).view(p.shape)


def places(params: Sequence[Tensor]) -> Iterator[tuple[Tensor, int, int]]:
    """Yield each tensor with its first byte and the one after its last; all begin at a multiple of 64, which fits every type."""
    at = 0
    for p in params:
        yield p, at, at + p.numel() * p.element_size()
        at += -(-p.numel() * p.element_size() // 64) * 64


def generate(pipe: Any, published: Published, lock: Any, config: Config, stage: str, model: nn.Module, tokenizer: Any, local: bytes) -> None:
    """Entry point of a generator process: play what is sent until told to end, or until the trainer is gone."""
    begin(config, local)
    _follow_the_trainer()
    try:
        asyncio.run(_Generator(pipe, published, lock, config, stage, model, tokenizer).run())
    except BaseException:
        with contextlib.suppress(OSError):
            pipe.send_bytes(pickle.dumps(("error", traceback.format_exc()), protocol=5))


def _follow_the_trainer() -> None:
    """End this process soon after the trainer's, even when an environment keeps the event loop from seeing that the pipe closed."""
    trainer = multiprocessing.parent_process()
    assert trainer is not None

    def watch() -> None:
        trainer.join()
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="agentgym-watch", daemon=True).start()


class _Generator:
    """Plays groups of one stage side by side and sends each back when it is whole."""

    def __init__(self, pipe: Any, published: Published, lock: Any, config: Config, stage: str, model: nn.Module, tokenizer: Any) -> None:
        self.pipe, self.published, self.lock = pipe, published, lock
        self.params = trainable(model)
        for p in self.params:  # what does not change stays shared with the trainer; what it changes must not change under us
            p.data = torch.empty_like(p)
        players = Players(config, model, tokenizer, processes=generators(config))
        self.agent, self.gym = players.of(stage)
        self.agent.policy = self.policy = _Dated(self.agent.policy)
        c = players.stages[stage]
        self.size, self.explore = c.rollout.group_size, registry.bind("explore", c.explore.name, c.explore.options)
        self.max_staleness = c.rollout.max_staleness
        self.groups: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self.version = -1

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self.end: asyncio.Future[None] = loop.create_future()
        self.refresh()
        loop.add_reader(self.pipe.fileno(), self._read)
        beat = loop.create_task(self._beat())
        try:
            await self.end
        finally:
            loop.remove_reader(self.pipe.fileno())
            tasks = [beat, *(task for _, task in self.groups.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.policy.close()
            self.gym.close()
            _wait_for_closing()

    def refresh(self) -> None:
        """Take the published weights. Called between decoding ticks: the event loop runs nothing else meanwhile."""
        with self.lock:
            if self.published.version == self.version:
                return
            self.version = self.published.read(self.params)
        self.policy.load(None, self.version)
        for key, (serial, task) in list(self.groups.items()):
            if self.policy.oldest.get(key, self.version) < self.version - self.max_staleness:
                del self.groups[key]
                task.cancel()
                self._send(("stale", serial))  # nobody would learn from it: its place is worth more

    def _read(self) -> None:
        """Take one message from the trainer."""
        try:
            kind, payload = pickle.loads(self.pipe.recv_bytes())
            if kind == "weights":
                self.refresh()
            elif kind == "play":
                for serial, key, task, seed in payload:
                    self.groups[key] = serial, asyncio.create_task(self._play(serial, key, task, seed))
            else:
                self._stop()
        except (EOFError, OSError):  # the trainer is gone
            self._stop()
        except Exception as e:
            self._stop(e)

    def _stop(self, error: Exception | None = None) -> None:
        if self.end.done():
            return
        if error is None:
            self.end.set_result(None)
        else:
            self.end.set_exception(error)

    async def _play(self, serial: int, key: str, task: Task, seed: int) -> None:
        """Play one group and send it; whatever goes wrong is data, for the other side waits for an answer."""
        try:
            group = await self.explore(task, functools.partial(self._episode, key, seed), size=self.size)
            self._send(("group", (serial, list(group))))
        except Exception as e:
            self._send(("group", (serial, [broken(task, key, e) for _ in range(self.size)])))
        finally:
            self.groups.pop(key, None)
            self.policy.oldest.pop(key, None)

    async def _episode(self, key: str, seed: int, task: Task, index: int) -> Trajectory:
        return await self.gym.play(self.agent, task, group=key, seed=episode_seed(seed, index))

    async def _beat(self) -> None:
        while True:
            self._send(("beat", None))
            await asyncio.sleep(BEAT)

    def _send(self, message: tuple[str, Any]) -> None:
        data = pickle.dumps(message, protocol=5)
        try:
            self.pipe.send_bytes(data)
        except OSError:
            self._stop()


class _Dated:
    """A policy that keeps in mind the version of each group's oldest token."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.wants = policy, policy.wants
        self.release, self.load, self.close = policy.release, policy.load, policy.close
        self.oldest: dict[str, int] = {}

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        done = await self.policy.complete(request, sampling)
        group = request.episode.rpartition("/")[0]
        version = done.version[0] if isinstance(done.version, list) else done.version
        self.oldest[group] = min(version, self.oldest.get(group, version))
        return done


def _wait_for_closing(limit: float = 5.0) -> None:
    """Give environments whose episodes were cut short the time to close: some have containers or servers to stop."""
    until = time.monotonic() + limit
    for thread in threading.enumerate():
        if thread.name == "agentgym-close":
            thread.join(max(0.0, until - time.monotonic()))
