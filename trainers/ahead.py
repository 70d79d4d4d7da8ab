"""Asynchronous rollouts: other processes play on while this one learns, up to `rollout.max_staleness` versions of the weights ahead.

Groups are admitted here, played by generator processes (see _generator.py), and handed out when they are whole, whoever is first: a slow
episode keeps nobody waiting. With B groups an update and a bound of S versions, (S + 1)·B groups at most are admitted and not yet learnt
from, so that a group that was played without delay is never older than S versions. One that was held up and is older is dropped, counted,
and never learnt from (so slow tasks are learnt from a little less often). Which version plays which token depends on the clock: unlike a
synchronous run, the same seed does not give the same numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch.multiprocessing as mp
from torch import nn

from agentgym import registry
from agentgym.config import Config, stages
from agentgym.errors import ConfigError, PolicyError
from agentgym.types import Task, Trajectory

from . import setup
from ._generator import Published, generators
from ._helper import broken
from ._seat import Done, Job, Seat
from .model import trainable

_IN_A_ROW = 3  # deaths of a generator, with no group finished in between, that a run survives
_DEATHS = 2  # deaths that a group may see before it counts as broken: it may be what kills
_LOOK = 5.0  # seconds between two looks at who has said nothing


def goes_ahead(config: Config) -> bool:
    """Return whether a stage plays asynchronously: it wants to, and has a policy with weights (an expert's games do not age)."""
    return config.rollout.max_staleness > 0 and registry.needs_model(config.policy.name)


class Ahead:
    """The trainer's side of one stage's asynchronous rollouts.

    take  draws tasks: the sampler's method
    say   takes messages for people

    Made without processes, so that a wrong configuration is found early; `start` begins. Raises ConfigError on a device other than the CPU.
    """

    anywhere = False  # whether the weights can come from any device

    def __init__(
        self,
        config: Config,
        stage: str,
        model: nn.Module,
        tokenizer: Any,
        take: Callable[[int], Sequence[Task]],
        *,
        say: Callable[[str], None],
    ) -> None:
        if config.run.device != "cpu" and not self.anywhere:
            raise ConfigError(
                f"rollout.max_staleness above 0 plays in other processes on the CPU; with device={config.run.device} use rollout.max_staleness=0"
            )
        self.config, self.stage, self.model, self.tokenizer, self._take, self._say = config, stage, model, tokenizer, take, say
        c = stages(config)[stage]
        self._batch, self.max_staleness, self._size = c.rollout.tasks, c.rollout.max_staleness, c.rollout.group_size
        self._patience = 60.0 + c.rollout.step_timeout  # seconds without a sign of life after which a generator is ended
        self.version = -1
        self._params = trainable(model)
        self._seats: list[Seat] = []
        self._inbox: queue.SimpleQueue[tuple[Seat, bytes | None]] = queue.SimpleQueue()
        self._wake: Callable[[], Any] | None = None
        self._serial = 0  # of the next group
        self._again: deque[Job] = deque()  # to be admitted before anything new
        self._ready: list[Done] = []
        self._learning = 0  # groups handed out since the last publish
        self._arrived = 0
        self._lead = 2 * self._batch  # groups that may be admitted and not yet learnt from, at present
        self._counts = {"stale_dropped": 0.0, "restarts": 0.0, "seconds_waited": 0.0}
        self._looked = time.monotonic()

    def start(self, version: int) -> None:
        """Begin: the generators start with the model's present weights, called `version`."""
        self.version = version
        self.model.share_memory()  # what training does not change is not copied
        self._published = Published(self._params)
        self._published.write(self._params, version)
        self._context = mp.get_context("spawn")
        self._seats = [self._seat(i) for i in range(1, generators(self.config) + 1)]
        self._admit()

    def _seat(self, index: int, deaths: int = 0) -> Seat:
        return Seat(self._context, index, deaths, self._published, (self.config, self.stage, self.model, self.tokenizer), self._deliver)

    # -- what the trainer calls -------------------------------------------------------------------------------------------------------

    async def next(self, n: int, *, progress: Callable[[int, int], None] | None = None) -> list[list[Trajectory]]:
        """Return the next n whole groups that are not too old, those with the oldest tokens first; `progress(done, n)` while it waits.

        The caller learns from them with the weights of the last `publish`. Raises PolicyError when every episode of all groups broke, or a
        generator cannot go on.
        """
        begun = time.perf_counter()
        self._receive()
        self._tune(n)
        while True:
            self._admit(n)
            if progress:
                progress(min(len(self._ready), n), n)
            if len(self._ready) >= n:
                break
            await self._news()
            self._receive()
        self._counts["seconds_waited"] += time.perf_counter() - begun
        # The oldest first, not the first: what is next to be dropped is used while it can be, and nobody waits for it.
        order = sorted(self._ready, key=lambda d: (self.version if d.oldest is None else d.oldest, d.order))
        chosen, self._ready = order[:n], sorted(order[n:], key=lambda d: d.order)
        self._learning += n
        groups = [d.group for d in chosen]
        _check_any(groups)
        return groups

    def publish(self, version: int) -> None:
        """Hand the model's present weights to the generators, who take them at their next decoding tick, and admit new groups."""
        self._receive()
        with contextlib.ExitStack() as held:
            for seat in self._seats:
                seat.hold(held)  # it may be copying
            self._published.write(self._params, version)
        for seat in self._seats:
            seat.send("weights", version)
        self.version, self._learning = version, 0
        self._drop_stale()
        self._admit()

    def pending(self) -> list[Job]:
        """Return the groups that were admitted and not handed out, in the order of their admission: a resumed run plays them first."""
        under_way = [job for seat in self._seats for job in seat.jobs.values()]
        return sorted([*self._again, *under_way, *(d.job for d in self._ready)], key=lambda j: j.serial)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold: no task that the sampler gave is lost (episodes under way are played anew)."""
        return {"serial": self._serial, "pending": [j.row() for j in self.pending()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; before `start`."""
        self._serial = state["serial"]
        self._again = deque(Job.of(row) for row in state["pending"])

    def metrics(self) -> dict[str, float]:
        """Return counts since the last call, and how many groups are under way.

        rollout/stale_dropped   groups that were too old
        rollout/restarts        generators that died and were replaced
        rollout/seconds_waited  what the trainer waited for groups; 0 when generation keeps up
        rollout/ahead           groups admitted and not handed out
        """
        found = {f"rollout/{n}": x for n, x in self._counts.items()} | {"rollout/ahead": float(len(self.pending()))}
        self._counts = dict.fromkeys(self._counts, 0.0)
        return found

    def close(self) -> None:
        """End the generators; what they have under way is lost. Calling it twice is allowed."""
        seats, self._seats = self._seats, []
        for seat in seats:
            seat.send("end", None)
        for seat in seats:
            seat.close()

    # -- admission --------------------------------------------------------------------------------------------------------------------

    def _tune(self, n: int) -> None:
        """Let the generators run further ahead when the trainer has to wait, and less when a whole batch would lie and age.

        OURS: with a fixed lead, generators that are faster than the trainer fill the queue, and everything is as old as allowed.
        """
        spare = len(self._ready) - n
        step = self._batch if spare < 0 else -self._batch if spare >= self._batch else 0
        self._lead = min(max(self._lead + step, 2 * self._batch), (self.max_staleness + 1) * self._batch)

    def _admit(self, wanted: int = 0) -> None:
        """Admit groups while there is room; `wanted`: groups that the trainer is waiting for."""
        under_way = [job for seat in self._seats for job in seat.jobs.values()]
        room = self._lead - self._learning - len(self._ready) - len(under_way)
        # Whatever holds the older ones up, for a trainer that waits there are new ones under way. No more than (S + 1)·B wait to be handed
        # out all the same, because generators give up those that got too old.
        room = max(room, wanted - len(self._ready) - sum(j.version == self.version for j in under_way))
        sent: dict[Seat, list[Job]] = {}
        for job in self._draw(room):
            seat = min(self._seats, key=lambda s: len(s.jobs))
            seat.jobs[job.serial], job.version = job, self.version
            sent.setdefault(seat, []).append(job)
        for seat, jobs in sent.items():
            seat.send("play", [(j.serial, j.key, j.task, j.seed) for j in jobs])

    def _draw(self, n: int) -> list[Job]:
        jobs = [self._again.popleft() for _ in range(min(n, len(self._again)))]
        for task in self._take(n - len(jobs)) if n > len(jobs) else ():
            seed = setup.seed_of(self.config.run.seed, self.stage, "group", self._serial) % 2**40
            jobs.append(Job(self._serial, f"{self.stage}-{self._serial}", task, seed))
            self._serial += 1
        return jobs

    def _drop_stale(self) -> None:
        fresh = [d for d in self._ready if d.oldest is None or d.oldest >= self.version - self.max_staleness]
        self._counts["stale_dropped"] += len(self._ready) - len(fresh)
        self._ready = fresh

    # -- what comes back --------------------------------------------------------------------------------------------------------------

    def _deliver(self, seat: Seat, data: bytes | None) -> None:
        """Take a message; in a thread of the seat's own, so that a generator never waits for a trainer that computes."""
        self._inbox.put((seat, data))
        if wake := self._wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                wake()

    async def _news(self) -> None:
        """Wait until something arrives, or a few seconds."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(event.set)
        try:
            if self._inbox.empty():
                async with asyncio.timeout(_LOOK):
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            self._wake = None
        self._look()

    def _receive(self) -> None:
        """Take in what has arrived."""
        while not self._inbox.empty():
            seat, data = self._inbox.get_nowait()
            if seat in self._seats:
                self._died(seat) if data is None else self._take_in(seat, *pickle.loads(data))
        self._drop_stale()

    def _take_in(self, seat: Seat, kind: str, payload: Any) -> None:
        seat.heard = True
        if kind == "error":
            raise PolicyError(f"the generator process {seat.process.name} failed:\n{payload}")
        if kind == "group":
            serial, group = payload
            seat.deaths = 0
            self._finished(seat.jobs.pop(serial), group)
        elif kind == "stale":
            del seat.jobs[payload]
            self._counts["stale_dropped"] += 1

    def _finished(self, job: Job, group: list[Trajectory]) -> None:
        self._ready.append(Done(job, group, self._arrived))
        self._arrived += 1

    def _died(self, seat: Seat) -> None:
        """Replace a dead generator; its groups are played again, but for one that has seen too many deaths."""
        seat.close()
        if seat.deaths >= _IN_A_ROW:
            raise PolicyError(
                f"{seat.epitaph()}, {seat.deaths + 1} times in a row. Go on with `agentgym resume RUN_DIR`; or start anew with fewer episodes "
                "at a time (rollout.concurrency), or in one process (rollout.max_staleness=0)"
            )
        jobs, self._counts["restarts"] = list(seat.jobs.values()), self._counts["restarts"] + 1
        for job in jobs:
            job.deaths += 1
            if job.deaths >= _DEATHS:
                reason = PolicyError(f"{seat.epitaph()} while it played this group, for the second time")
                self._finished(job, [broken(job.task, job.key, reason) for _ in range(self._size)])
            else:
                self._again.append(job)
        self._say(f"{seat.epitaph()}; another one takes its place, and {len(jobs)} groups are played again")
        self._seats[self._seats.index(seat)] = self._seat(seat.index, seat.deaths + 1)

    def _look(self) -> None:
        """End a generator that has given no sign of life for long: an environment that is not marked `blocking` may hang in it."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        for seat in self._seats:
            if not seat.process.is_alive():  # its pipe should have said so, unless something that it started still holds it
                self._inbox.put((seat, None))
            # Counted in looks, not by the clock: a machine that slept must not end its generators.
            seat.silent = 0.0 if seat.heard else seat.silent + _LOOK
            seat.heard = False
            if seat.silent >= self._patience:
                seat.kill(f"gave no sign of life for {seat.silent:g} s")


def _check_any(groups: list[list[Trajectory]]) -> None:
    """Raise PolicyError when not one episode could be played."""
    played = [t for g in groups for t in g]
    if played and all(t.failed for t in played):
        first = played[0]
        raise PolicyError(f"all {len(played)} episodes failed; the first: {first.error}\n{first.info.get('traceback', '')}".rstrip())
