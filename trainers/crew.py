"""Several processes, one model: each plays a share of the episodes and computes a share of every gradient.

A small model on a CPU gains little from threads inside one process (each operation is too short), but almost the number of cores from
processes. The weights lie in shared memory, so an optimiser step is seen by all at once and nothing is copied. Which process plays or
differentiates what depends on the work alone, never on timing: the same seed gives the same numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

from agentgym import registry
from agentgym.config import Config
from agentgym.errors import ConfigError, PolicyError
from agentgym.rollout import Agent, Gym
from agentgym.types import Task, Trajectory

from ._helper import helper
from .forward import live
from .model import trainable

if TYPE_CHECKING:
    from .forward import MicroBatch


class Crew:
    """The helpers of one run, `n` − 1 of them; this process is number 0 and does its share too."""

    def __init__(self, config: Config, model: nn.Module, tokenizer: Any, *, n: int) -> None:
        if config.run.device != "cpu":
            raise ConfigError(f"run.workers={n} shares the model between processes of one CPU; with device={config.run.device} use run.workers=1")
        self.n = n
        self.params = trainable(model)
        model.share_memory()
        context = mp.get_context("spawn")
        size = sum(p.numel() for p in self.params)
        self._mates = [_Mate(context, i, config, model, tokenizer, size) for i in range(1, n)]
        self._tickets = itertools.count()
        self._pending: dict[int, asyncio.Future[Trajectory]] = {}
        self._outbox: dict[int, list[Any]] = {}
        self._failure: PolicyError | None = None

    # -- episodes -----------------------------------------------------------------------------------------------------------------

    async def play(self, who: int, agent: str, task: Task, group: str, seed: int) -> Trajectory:
        """Let process `who` (≥ 1) play one episode as `agent` (a stage's name, or "eval")."""
        loop = asyncio.get_running_loop()
        ticket, future = next(self._tickets), loop.create_future()
        self._pending[ticket] = future
        if not self._outbox:
            # All episodes that are asked for in one go travel in one message: what a helper batches together must not depend on timing.
            loop.call_soon(self._flush, loop)
        self._outbox.setdefault(who, []).append((ticket, agent, task, group, seed))
        return await future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        outbox, self._outbox = self._outbox, {}
        for who, asked in outbox.items():
            mate = self._mates[who - 1]
            try:
                mate.send("play", asked)
            except PolicyError as e:
                self._fail(e)
                return
            loop.add_reader(mate.pipe.fileno(), self._receive, mate)

    def _receive(self, mate: _Mate) -> None:
        try:
            for ticket, trajectory in mate.receive():
                future = self._pending.pop(ticket, None)
                if future and not future.done():
                    future.set_result(trajectory)
        except PolicyError as e:
            asyncio.get_running_loop().remove_reader(mate.pipe.fileno())
            self._fail(e)

    def check(self) -> None:
        """Raise PolicyError if a helper failed: whoever counts broken episodes must not count these."""
        if self._failure:
            raise self._failure

    def _fail(self, error: PolicyError) -> None:
        self._failure = error
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)

    def load(self, version: int) -> None:
        """Tell the helpers that the weights changed."""
        for mate in self._mates:
            mate.send("load", version)

    # -- forward passes ----------------------------------------------------------------------------------------------------------------

    def share(self, work: Sequence[MicroBatch]) -> list[list[MicroBatch]]:
        """Deal micro-batches out, the largest first to whoever has least; entry 0 is this process's own."""
        shares: list[list[MicroBatch]] = [[] for _ in range(self.n)]
        load = [0] * self.n
        for rows in sorted(work, key=lambda r: -r.cells):
            i = load.index(min(load))
            shares[i].append(rows)
            load[i] += rows.cells
        return shares

    def lend(self, reference: nn.Module | None) -> None:
        """Give the helpers the model that `score` calls the reference, its weights in shared memory; None: the policy's with its adapters off."""
        if reference is not None:
            reference.share_memory()
        for mate in self._mates:
            mate.send("lend", reference, ForkingPickler.dumps)  # which passes the shared memory on, not its content

    def score(
        self, model: nn.Module, work: Sequence[MicroBatch], wanted: Tensor, *, reference: bool, **options: Any
    ) -> Iterator[tuple[MicroBatch, dict[str, Tensor]]]:
        """Yield each micro-batch with what forward.live finds for its `wanted` [N] tokens, computed by all processes, without gradient.

        model  the policy's, or with `reference` the one that was lent
        """
        shares = [[(rows, wanted[rows.index]) for rows in mine] for mine in self.share(work)]
        for mate, theirs in zip(self._mates, shares[1:], strict=True):
            mate.send("score", (reference, theirs, options))
        yield from ((rows, live(model, rows, asked, **options)) for rows, asked in shares[0])
        for mate, theirs in zip(self._mates, shares[1:], strict=True):
            mate.wait("its share of the log-probabilities")
            yield from zip((rows for rows, _ in theirs), mate.receive(), strict=True)

    def start(self, stage: str, shares: Sequence[list[MicroBatch]], part: Any, plan: Any) -> None:
        """Send the helpers their shares of a gradient."""
        for mate, rows in zip(self._mates, shares[1:], strict=True):
            mate.send("gradient", (stage, rows, part, plan))

    def finish(self, meter: Any) -> list[Any]:
        """Wait for the helpers, add their gradients to this process's, and return what they measured; `meter`: what this one did."""
        meters = []
        for mate in self._mates:
            mate.wait("its share of a gradient")
            meters.append(mate.receive())
            for p, g in zip(self.params, mate.gradient.split([p.numel() for p in self.params]), strict=True):
                p.grad = g.view_as(p).clone() if p.grad is None else p.grad.add_(g.view_as(p))
        return meters

    def close(self) -> None:
        """End the helpers."""
        for mate in self._mates:
            mate.close()


class GroupTurns:
    """Deals groups to n players in turn, whole groups to one: a group has a prompt in common."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._groups: dict[str, int] = {}
        self._dealt = 0

    def player_of(self, group: str) -> int:
        """Return who plays the episodes of a group, from 0."""
        if group not in self._groups:
            if len(self._groups) > 100_000:
                self._groups.clear()
            self._groups[group] = self._dealt % self._n
            self._dealt += 1
        return self._groups[group]


class CrewGym(Gym):
    """A gym whose episodes are dealt to all processes, whole groups at a time."""

    def __init__(self, crew: Crew, agent: str, make_env: Any, *, concurrency: int, timeout: float) -> None:
        super().__init__(make_env, concurrency=-(-concurrency // crew.n), timeout=timeout)
        self._crew, self._agent, self._turns = crew, agent, GroupTurns(crew.n)

    async def play(self, agent: Agent, task: Task, *, group: str, seed: int) -> Trajectory:
        """Play one episode here or in a helper."""
        who = self._turns.player_of(group)
        if who == 0:
            return await super().play(agent, task, group=group, seed=seed)
        return await self._crew.play(who, self._agent, task, group, seed)


class _Mate:
    """One helper process, seen from here."""

    def __init__(self, context: Any, index: int, config: Config, model: nn.Module, tokenizer: Any, size: int) -> None:
        self.gradient = torch.zeros(size).share_memory_()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=helper,
            args=(theirs, config, model, tokenizer, self.gradient, registry.local_name("env", config.env.name)),
            name=f"agentgym-helper-{index}",
            daemon=True,
        )
        self.process.start()
        theirs.close()

    def send(self, kind: str, payload: Any, pickled: Callable[[Any], Any] = pickle.dumps) -> None:
        try:
            self.pipe.send_bytes(pickled((kind, payload)))
        except OSError as e:
            raise self._dead() from e

    def wait(self, what: str, every: float = 60.0) -> None:
        """Wait until there is an answer; one that takes long is said, so that a stuck helper is no silent hang."""
        waited = 0.0
        while not self.pipe.poll(every):  # the end of a dead one's pipe counts as an answer
            waited += every
            print(
                f"{self.process.name} has worked on {what} for {waited:g} s and is alive; waiting (Ctrl-C ends the run)", file=sys.stderr, flush=True
            )

    def receive(self) -> Any:
        try:
            kind, payload = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError) as e:
            raise self._dead() from e
        if kind == "error":
            raise PolicyError(f"the helper process {self.process.name} failed:\n{payload}")
        return payload

    def _dead(self) -> PolicyError:
        self.process.join(1)
        return PolicyError(
            f"the helper process {self.process.name} died (exit code {self.process.exitcode}; -9 is often the system being out of memory). "
            "Go on with `agentgym resume RUN_DIR`, or run in one process with run.workers=1"
        )

    def close(self) -> None:
        self.pipe.close()  # the helper ends when its pipe does
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
