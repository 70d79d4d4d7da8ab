"""The trainer's side of a cluster: engines that play for it, and what happens when one of them is lost.

Which engine plays what depends on the work alone: groups are dealt in turn. Weights are put once per update, and every engine gets them. An
engine that is lost is replaced, gets the weights, and plays again what the lost one had under way, with the same seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from torch import nn

from agentgym import registry
from agentgym.config import Config
from agentgym.errors import LostError, PolicyError
from agentgym.rollout import Agent, Gym
from agentgym.types import Task, Trajectory

from .. import setup
from .._helper import broken
from ..crew import GroupTurns
from ..model import trainable
from ._compact import expand
from ._engine import Engine
from ._envs import EnvWorker, RemoteGym, deal_slots
from ._place import Backend, Place
from ._weights import dismantle, pack

_IN_A_ROW = 3  # engines lost in one place, with nothing finished in between, that a run survives
_DEATHS = 2  # losses that an episode may see before it counts as broken: it may be what kills
_STARTING = 900.0  # seconds in which an engine has to say something for the first time: it reads its model
_PAUSE = 3.0  # seconds before another one takes the place of an engine that never was there: its machine may be gone without everybody knowing yet
_LOOK = 5.0  # seconds between two looks at who has said nothing

# What a stage that plays ahead hears: number of the engine, "group" | "stale" | "lost", what about it.
Listener = Callable[[int, str, Any], None]


@dataclass
class Job:
    """An episode that an engine plays."""

    ticket: int
    player: str
    task: Task
    group: str
    seed: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Trajectory]
    deaths: int = 0

    def answer(self, trajectory: Trajectory | None, error: Exception | None = None) -> None:
        """Hand the result over, from any thread."""

        def deliver() -> None:
            if self.future.done():
                return
            if trajectory is not None:
                self.future.set_result(trajectory)
            else:
                self.future.set_exception(error or PolicyError("no answer"))

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(deliver)


class Link:
    """One engine as the trainer sees it. Whatever it says, or its end, comes as an event (link, kind, payload)."""

    def __init__(self, place: Place, index: int, owner: str, deaths: int, events: queue.SimpleQueue[Any]) -> None:
        self.place, self.index, self.owner, self.deaths = place, index, owner, deaths
        self.jobs: dict[int, Job] = {}
        self.there = False  # whether its process has answered at all
        self.waits = False  # for its successor
        self.spoke, self.silent = False, 0.0
        self._events = events

    def send(self, method: str, *args: Any) -> None:
        """Call a method whose answer matters only when it is an error."""
        self.place.call(method, *args).add_done_callback(functools.partial(self._answered, ""))

    def listen(self) -> None:
        """Ask for what has finished."""
        self.place.call("news").add_done_callback(functools.partial(self._answered, "news"))

    def _answered(self, kind: str, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self._events.put((self, "lost" if isinstance(error, LostError) else "failed", error))
            return
        self.there = True
        if kind:
            self._events.put((self, kind, future.result()))


class Fleet:
    """Engines and environment workers of one run.

    say  takes messages for people, from any thread
    """

    def __init__(self, backend: Backend, config: Config, model: nn.Module, tokenizer: Any, *, say: Callable[[str], None]) -> None:
        self.backend, self.config, self.say = backend, config, say
        self.n = backend.engines.number
        self.listener: Listener | None = None
        self.edition, self.version = -1, 0
        self._params, self._weights, self._stored = trainable(model), None, deque[Any]()
        self._local = registry.local_name("env", config.env.name)
        self._lives = itertools.count()
        self._tickets = itertools.count()
        self._outbox: dict[int, list[Job]] = {}
        self._counts = dict.fromkeys(("restarts", "episodes_lost", "episodes_again", "episodes", "bytes", "put_seconds", "put_mb"), 0.0)
        self._failure: PolicyError | None = None
        self._lock = threading.RLock()
        self._events: queue.SimpleQueue[tuple[Link, str, Any] | None] = queue.SimpleQueue()
        self._patience = 60.0 + config.rollout.step_timeout  # seconds without a sign of life after which an engine is ended
        w = backend.envs
        self._workers = [
            backend.place(f"environments-{i}", "envs", i, EnvWorker, config, self._local, w.concurrency, restart=True) for i in range(w.number)
        ]
        self._parts = backend.put(dismantle((model, tokenizer))) if self.n else None
        self.links: list[Link] = []
        if self.n:
            self.load(0)  # kept for the engines, which get it with their first message
            self.links = [self._link(i, 0) for i in range(self.n)]
            self._thread = threading.Thread(target=self._run, name="agentgym-fleet", daemon=True)
            self._thread.start()

    # -- what the trainer calls -------------------------------------------------------------------------------------------------------

    def gym(self, config: Config, split: str, player: str) -> Gym:
        """Return a gym over `split` whose episodes are played out there, as `player` (a stage's name, or "eval")."""
        if self.n:
            return FleetGym(self, player, setup.make_env(config, split))
        slots = deal_slots(self._workers, self.backend.envs.concurrency, 0, 1)
        return RemoteGym(slots, "trainer", split, concurrency=config.rollout.concurrency, timeout=config.rollout.step_timeout)

    async def play(self, who: int, player: str, task: Task, group: str, seed: int) -> Trajectory:
        """Let engine `who` play one episode. Raises PolicyError when the engines cannot go on."""
        self.check()
        loop = asyncio.get_running_loop()
        job = Job(next(self._tickets), player, task, group, seed, loop, loop.create_future())
        if not self._outbox:
            # All episodes that are asked for in one go travel in one message: what an engine batches together must not depend on timing.
            loop.call_soon(self._flush)
        self._outbox.setdefault(who, []).append(job)
        return await job.future

    def tell(self, who: int, method: str, *args: Any) -> None:
        """Call a method of an engine."""
        with self._lock:
            if self.links:
                self.links[who].send(method, *args)

    def load(self, version: int) -> None:
        """Send the model's present weights to every engine."""
        if not self.n:
            return
        begun = time.perf_counter()
        flat = pack(self._params)
        with self._lock:
            self._weights = self.backend.put(flat)
            self._stored.append(self._weights)
            self.edition, self.version = self.edition + 1, version
            self._counts["put_seconds"] += time.perf_counter() - begun
            self._counts["put_mb"] += flat.nbytes / 1e6
            for link in self.links:
                self._send_weights(link)
            if len(self._stored) > 2:  # one that is slow may be about to read the last ones
                self.backend.free(self._stored.popleft())

    def check(self) -> None:
        """Raise PolicyError when the engines cannot go on: whoever counts broken episodes must not count these."""
        if self._failure:
            raise self._failure

    def metrics(self) -> dict[str, float]:
        """Return counts since the last call.

        cluster/restarts          engines that were lost and replaced
        cluster/episodes_lost     episodes that they had under way, and that were played again
        cluster/episodes_again    episodes that were played again because an environment worker was lost
        cluster/trajectory_bytes  mean size of a trajectory on its way here
        cluster/put_seconds, cluster/put_mb   weights: reading and storing them
        """
        with self._lock:
            c, self._counts = self._counts, dict.fromkeys(self._counts, 0.0)
        bytes_, episodes = c.pop("bytes"), c.pop("episodes")
        return {f"cluster/{n}": x for n, x in c.items()} | {"cluster/trajectory_bytes": bytes_ / max(episodes, 1.0)}

    def close(self) -> None:
        """End engines and workers. Calling it twice is allowed."""
        with self._lock:
            links, self.links = self.links, []
            self._events.put(None)
        closing = [threading.Thread(target=link.place.close, name="agentgym-closing", daemon=True) for link in links]
        for thread in closing:  # side by side, and before the workers: they close their environments there
            thread.start()
        for thread in closing:
            thread.join()
        self.backend.close()

    # -- engines ----------------------------------------------------------------------------------------------------------------------

    def _link(self, index: int, deaths: int) -> Link:
        owner = f"engine-{index}.{next(self._lives)}"
        e = self.backend.engines
        slots = deal_slots(self._workers, self.backend.envs.concurrency, index, self.n)
        threads = self.config.run.threads or max(1, int(e.cpus))
        make = functools.partial(Engine, engines=self.n, threads=threads, device="cuda" if e.gpus else "cpu")
        place = self.backend.place(f"engine-{index}", "engine", index, make, self.config, self._local, slots, owner, restart=False)
        link = Link(place, index, owner, deaths, self._events)
        link.send("prepare", self._parts)
        self._send_weights(link)
        link.listen()
        return link

    def _send_weights(self, link: Link) -> None:
        link.send("load", self.edition, self.version, self._weights)

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, {}
        with self._lock:
            for who, jobs in outbox.items():
                self._play(self.links[who], jobs)

    def _play(self, link: Link, jobs: list[Job]) -> None:
        if self._failure:
            for job in jobs:
                job.answer(None, self._failure)
            return
        link.jobs |= {j.ticket: j for j in jobs}
        link.send("play", self.edition, [(j.ticket, j.player, j.task, j.group, j.seed) for j in jobs])

    # -- what comes back: a thread of its own, so that an engine is replaced while the trainer computes ---------------------------------

    def _run(self) -> None:
        looked = time.monotonic()
        while True:
            event: tuple[Link, str, Any] | None = None
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=_LOOK)
                if event is None:
                    return
            with self._lock:
                try:
                    if event is not None and event[0] in self.links:  # else it comes from one that was replaced, or the run is over
                        self._handle(*event)
                except Exception as e:  # a bug here must not leave the trainer waiting
                    self._fail(PolicyError(f"the cluster failed: {type(e).__name__}: {e}"))
                if time.monotonic() - looked >= _LOOK:
                    looked = time.monotonic()
                    self._look()

    def _handle(self, link: Link, kind: str, payload: Any) -> None:
        if kind == "news":
            link.spoke, link.silent = True, 0.0
            link.listen()
            again, found = payload
            self._counts["episodes_again"] += again
            for what, data in found:
                self._take(link, what, *pickle.loads(data))
        elif kind == "gone" or (kind == "lost" and link.there):
            self._replace(link, payload)
        elif kind == "lost":
            if not link.waits:
                link.waits = True
                timer = threading.Timer(_PAUSE, self._events.put, [(link, "gone", payload)])
                timer.daemon = True
                timer.start()
        else:
            notes = "\n".join(getattr(payload, "__notes__", ()))
            self._fail(PolicyError(f"{link.place.name} failed: {type(payload).__name__}: {payload}\n{notes}".rstrip()))

    def _take(self, link: Link, what: str, number: int, data: bytes) -> None:
        link.deaths = 0
        self._counts["bytes"] += len(data)
        if what == "episode":
            self._counts["episodes"] += 1
            if (job := link.jobs.pop(number, None)) is not None:
                job.answer(expand(data, [job.task])[0])
        elif self.listener is not None:
            self._counts["episodes"] += self.config.rollout.group_size if what == "group" else 0
            self.listener(link.index, what, (number, data))

    def _replace(self, link: Link, error: Exception) -> None:
        """Put another engine in the place of a lost one; its episodes are played again, but for one that has seen too many losses."""
        self._counts["restarts"] += 1
        if link.deaths >= _IN_A_ROW:
            self._fail(
                PolicyError(
                    f"{error}, {link.deaths + 1} times in a row. Go on with `agentgym resume RUN_DIR`; or start anew with fewer episodes at a time "
                    "(rollout.concurrency), or without cluster.engines"
                )
            )
            return
        link.place.kill("was lost")  # it may be the connection that was lost
        for worker in self._workers:
            worker.call("forget", link.owner)
        again = []
        for job in link.jobs.values():
            job.deaths += link.there  # else it was none of its doing
            if job.deaths >= _DEATHS:
                job.answer(broken(job.task, job.group, PolicyError(f"{error} while it played this episode, for the second time")))
            else:
                again.append(job)
        self._counts["episodes_lost"] += len(link.jobs) if link.there else 0
        if again or self.listener is None:  # else the stage that plays ahead says it
            self.say(f"{error}; another one takes its place, and {len(again)} episodes are played again")
        new = self.links[link.index] = self._link(link.index, link.deaths + 1)
        if again:
            self._play(new, again)
        if self.listener is not None:
            self.listener(link.index, "lost", str(error))

    def _look(self) -> None:
        """End an engine that has given no sign of life for long: an environment that is not marked `blocking` may hang in it."""
        for link in self.links:
            # Counted in looks, not by the clock: a machine that slept must not end its engines.
            link.silent += _LOOK
            if link.silent >= (self._patience if link.spoke else max(_STARTING, self._patience)):
                link.place.kill(f"gave no sign of life for {link.silent:g} s")
                link.silent = 0.0

    def _fail(self, error: PolicyError) -> None:
        self._failure = self._failure or error
        for link in self.links:
            for job in link.jobs.values():
                job.answer(None, self._failure)
            link.jobs = {}
        if self.listener is not None:
            self.listener(-1, "failed", self._failure)


class FleetGym(Gym):
    """A gym whose episodes are played by the engines, whole groups by one."""

    def __init__(self, fleet: Fleet, player: str, make_env: Any) -> None:
        super().__init__(make_env, concurrency=1)  # it makes no environment itself
        self._fleet, self._player, self._turns = fleet, player, GroupTurns(fleet.n)

    async def play(self, agent: Agent, task: Task, *, group: str, seed: int) -> Trajectory:
        """Play one episode in an engine."""
        return await self._fleet.play(self._turns.player_of(group), self._player, task, group, seed)
