"""Several engines behind one door: who answers whom, what happens when one is lost, and how new weights reach all of them."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentgym.errors import PolicyError

from .engine import Engine, EngineLost, Piece

T = TypeVar("T")
Bring = Callable[[Engine], Coroutine[Any, Any, None]]
_TRIES = 5  # engines that one turn may lose: more of them are no accident, but what this turn asks for


@dataclass(eq=False)
class Member:
    """One engine: whether it holds the present weights and answers, and how many requests it has."""

    engine: Engine
    up: bool = False
    busy: int = 0
    revival: asyncio.Task[None] | None = None


@dataclass
class Fleet:
    """Engines that hold the same weights. Everything happens in one event loop.

    bring     gives an engine the present weights and checks that they arrived; raises EngineLost when it is gone meanwhile
    patience  seconds to wait while no engine answers
    timeout   seconds for one completion, and for one push
    """

    members: list[Member]
    bring: Bring
    patience: float
    timeout: float = 600.0
    homes: dict[str, Member] = field(default_factory=dict)  # an episode stays where its prefix is cached
    restarts: int = 0
    reasons: dict[str, str] = field(default_factory=dict)  # engine name → why it was lost last
    _open: asyncio.Event = field(default_factory=asyncio.Event)  # closed while weights are pushed
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _calls: set[asyncio.Task[Any]] = field(default_factory=set)
    _failure: PolicyError | None = None

    async def start(self) -> None:
        """Start all engines side by side and bring them the weights. Raises PolicyError when one of them cannot."""

        async def one(m: Member) -> None:
            try:
                await m.engine.start()
                await self._bring(m)
            except EngineLost as e:
                raise PolicyError(f"{m.engine.name} cannot be used: {e}") from e
            m.up = True

        await asyncio.gather(*(one(m) for m in self.members))
        self._open.set()

    async def generate(self, episode: str, prompt: Sequence[int], params: dict[str, Any], adapter: Callable[[], str | None]) -> Piece:
        """Ask the episode's engine, or another one where it is lost. A piece may have been cut short by a push: finish "abort".

        Raises PolicyError when no engine comes back, and when engine after engine is lost under this very turn.
        """
        losses = 0
        while True:
            await self._open.wait()
            if self._failure is not None:
                raise self._failure
            m = await self._home(episode)
            m.busy += 1
            call = asyncio.ensure_future(self._in_time(m.engine.generate(prompt, params, adapter())))
            self._calls.add(call)
            try:
                return await call
            except EngineLost as e:
                self.lost(m, e)
                if (losses := losses + 1) >= _TRIES:
                    raise PolicyError(f"{losses} engines in a row were lost while they wrote one turn of {len(prompt)} tokens; the last: {e}") from e
            except asyncio.CancelledError:
                if not call.done():  # whoever asked has gone: its request must not go on
                    call.cancel()
                    raise
                if (me := asyncio.current_task()) and me.cancelling():
                    raise
                # else a push ended it from inside (see `push`): it is asked again afterwards
            finally:
                m.busy -= 1
                self._calls.discard(call)

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work of an engine. Raises EngineLost when it takes too long: an engine that hangs is as good as gone."""
        try:
            async with asyncio.timeout(self.timeout) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise EngineLost(f"no answer within {self.timeout:g} s (policy.timeout)") from None

    async def _bring(self, m: Member) -> None:
        await self._in_time(self.bring(m.engine))

    async def _home(self, episode: str) -> Member:
        """Return an engine that is up: the episode's own, else the least busy one; wait for one where there is none."""
        m = self.homes.get(episode)
        if m is not None and m.up:
            return m
        until = time.monotonic() + self.patience
        async with self._news:
            while not (up := [m for m in self.members if m.up]):
                if self._failure is not None:
                    raise self._failure
                try:
                    async with asyncio.timeout(until - time.monotonic()):
                        await self._news.wait()
                except TimeoutError:
                    why = "; ".join(f"{m.engine.name}: {self.reasons.get(m.engine.name, 'lost')}" for m in self.members)
                    raise PolicyError(f"no engine came back within {self.patience:g} s (policy.patience). {why}") from None
        self.homes[episode] = chosen = min(up, key=lambda m: m.busy)
        return chosen

    def release(self, episode: str) -> None:
        """Forget where an episode was at home."""
        self.homes.pop(episode, None)

    def lost(self, m: Member, error: Exception) -> None:
        """Take an engine out of service and try to get it back."""
        if m.up:
            m.up = False
            self.restarts += 1
            warnings.warn(f"{m.engine.name} was lost and is started anew: {error}", stacklevel=2)
        self.reasons[m.engine.name] = str(error)
        if m.revival is None or m.revival.done():
            m.revival = asyncio.ensure_future(self._revive(m))

    async def _revive(self, m: Member) -> None:
        """Wait until an engine answers again, give it the present weights, and put it back into service."""
        until = time.monotonic() + self.patience
        while time.monotonic() < until:
            try:
                await m.engine.start()
                await self._open.wait()  # not in the middle of a push
                await self._bring(m)
            except EngineLost as e:
                self.reasons[m.engine.name] = str(e)
                await asyncio.sleep(0.2)
                continue
            except PolicyError as e:  # its weights are wrong: nobody may be asked any more
                self._failure = e
                break
            m.up = True
            break
        async with self._news:
            self._news.notify_all()

    async def push(self, wait: float) -> None:
        """Stop all engines, bring them the weights, and let them go on; what they were sampling comes back as pieces.

        A request that neither ends nor is aborted within `wait` seconds (it came after the pause) is given up and asked again.
        """
        if self._failure is not None:
            raise self._failure
        self._open.clear()
        try:
            up = [m for m in self.members if m.up]
            for m, found in zip(up, await asyncio.gather(*(m.engine.pause() for m in up), return_exceptions=True), strict=True):
                self._sort(m, found)
            if self._calls:
                _, late = await asyncio.wait(self._calls, timeout=wait)
                for call in late:
                    call.cancel()
            up = [m for m in up if m.up]
            for m, found in zip(up, await asyncio.gather(*(self._bring(m) for m in up), return_exceptions=True), strict=True):
                self._sort(m, found)
            for m in (m for m in self.members if not m.up):
                self.lost(m, EngineLost(self.reasons.get(m.engine.name, "")))  # one that was given up gets another chance
        finally:
            self._open.set()

    def _sort(self, m: Member, found: object) -> None:
        if isinstance(found, EngineLost):
            self.lost(m, found)
        elif isinstance(found, BaseException):
            raise found

    async def close(self) -> None:
        """Let go of all engines."""
        for m in self.members:
            if m.revival is not None:
                m.revival.cancel()
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*(m.engine.close() for m in self.members), return_exceptions=True)
