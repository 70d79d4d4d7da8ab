"""The processes of one run, as torchrun or the cluster started them: who plays what, and what they tell each other. No model in here.

All of them run the same loop on the same data. Each plays every n-th group, whole, and then all get all episodes: seeds go by the group, and a
draw by its episode's own seed, so who plays a group does not matter. Process 0 alone writes to disk and speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from agentgym.config import Config, Shard
from agentgym.errors import AgentGymError, ConfigError, PolicyError
from agentgym.types import Task, Trajectory

Job = TypeVar("Job")
Result = TypeVar("Result")
Play = Callable[[Task, int], Awaitable[Trajectory]]

# Some may be done with their episodes long before the others; a process that died is torchrun's affair, which ends them all.
_PATIENCE = datetime.timedelta(hours=12)


class Alone:
    """A run in one process: nothing to deal out, nobody to agree with."""

    rank, n, first = 0, 1, True

    async def deal(self, jobs: Sequence[Job], work: Callable[[Sequence[Job]], Awaitable[list[Result]]]) -> list[Result]:
        """Return one result per job, in order: `work` gets the jobs of this process."""
        return await work(jobs)

    async def deal_episodes(self, play: Play, jobs: Sequence[tuple[Task, int]]) -> Play:
        """Return a `play` for the jobs (task, sample); several processes have played them when this returns."""
        return play

    def agree(self, value: Any) -> Any:
        """Return what process 0 has for `value`: clocks differ, decisions must not."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return everybody's value, by rank."""
        return [value]

    def in_turn(self) -> AbstractContextManager[None]:
        """Let one process of a machine after the other in."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Leave the others."""


class Ranks(Alone):
    """Several processes, or one that holds its model as several would.

    device  where this one computes
    whole   context in which plain forward passes work here, without the others; set once there is a model
    """

    def __init__(self, device: str) -> None:
        # Whoever is shown its own GPU only has it as number 0.
        gpu = int(os.environ.get("LOCAL_RANK", "0")) % max(1, torch.cuda.device_count())
        self.device = torch.device(device, gpu) if device == "cuda" else torch.device(device)
        # Models meet through NCCL where there are GPUs; what processes tell each other goes through the hosts.
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if dist.is_initialized():
            pass  # by whoever started this process
        elif launched():
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        self.first = self.rank == 0
        self.hosts = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self.whole: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    async def deal(self, jobs: Sequence[Job], work: Callable[[Sequence[Job]], Awaitable[list[Result]]]) -> list[Result]:
        """Do every n-th job here and return all results. Raises PolicyError in every process when `work` failed in one."""
        mine, found, failure = jobs[self.rank :: self.n], list[Result](), ""
        with self.whole():
            try:
                found = await work(mine)
            except Exception as e:  # the others wait for an answer
                failure = str(e) if isinstance(e, AgentGymError) else f"{type(e).__name__}: {e}"
        shares = self.gather((found, failure))
        for rank, (_, reason) in enumerate(shares):
            if reason:
                raise PolicyError(f"process {rank} of {self.n} could not do its share: {reason}")
        return [shares[i % self.n][0][i // self.n] for i in range(len(jobs))]

    async def deal_episodes(self, play: Play, jobs: Sequence[tuple[Task, int]]) -> Play:
        """Play every n-th job here and return what knows all results; an episode that broke breaks again when it is asked for."""

        async def work(mine: Sequence[tuple[Task, int]]) -> list[Trajectory | str]:
            played = await asyncio.gather(*(play(*job) for job in mine), return_exceptions=True)
            return [x if isinstance(x, Trajectory) else f"{type(x).__name__}: {x}" for x in played]

        results = await self.deal(jobs, work)
        known = {(task.id, sample): x for (task, sample), x in zip(jobs, results, strict=True)}

        async def recall(task: Task, sample: int) -> Trajectory:
            found = known[task.id, sample]
            if isinstance(found, str):
                raise PolicyError(found)
            return found

        return recall

    def agree(self, value: Any) -> Any:
        """Return what process 0 has for `value`."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.hosts)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return everybody's value, by rank."""
        out: list[Any] = [None] * self.n
        dist.all_gather_object(out, value, group=self.hosts)
        return out

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let one process of a machine after the other in: a whole model may fit into its memory once, but not once per device."""
        mine, turns = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        for _ in range(mine):
            dist.barrier(self.hosts)
        try:
            yield
        finally:
            for _ in range(turns - mine):
                dist.barrier(self.hosts)

    def close(self) -> None:
        """Leave the others."""
        if dist.is_initialized():
            dist.destroy_process_group()


def launched() -> int:
    """Return how many processes torchrun (or whoever speaks its language) started this one with; 0 when nobody did."""
    return int(os.environ.get("WORLD_SIZE", "0")) if "RANK" in os.environ and "MASTER_ADDR" in os.environ else 0


def join(config: Config, *, resume: bool = False) -> Alone:
    """Meet the other processes of the run. A resumed run takes as many as there are now; `config.shard` says so afterwards.

    Raises ConfigError where the configuration and what was started do not fit.
    """
    s, there = config.shard, launched()
    if resume and (s.ranks or there):
        s.ranks = there or 1
        s.group = s.group if s.group and s.ranks % s.group == 0 else 0
    if not there and not s.ranks:
        idle = next((f"{n}={getattr(s, n)}" for n in ("group", "compute", "offload") if getattr(s, n) != getattr(Shard, n)), None)
        if idle:
            raise ConfigError(f"shard.{idle} does nothing where the model is not sharded: set shard.ranks=1, or start several with torchrun")
        return Alone()
    s.ranks = s.ranks or there
    if s.ranks != max(there, 1):
        start = f"torchrun --nproc-per-node {s.ranks} -m agentgym run …" if s.ranks > 1 else "without torchrun"
        raise ConfigError(
            f"shard.ranks={s.ranks}, but {max(there, 1)} process(es) were started. Start it {start}, or set shard.ranks={max(there, 1)}"
        )
    ranks = Ranks(config.run.device)
    config.run.dir = ranks.agree(config.run.dir)  # its name holds the time, which differs
    return ranks
