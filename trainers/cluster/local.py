"""This process and its children: what a run needs on one machine, without anything to install."""

from __future__ import annotations

import multiprocessing
import os
import secrets
from collections.abc import Callable
from typing import Any

from agentgym.errors import ConfigError

from ._place import Engines, Envs, Trainer, section
from ._process import ChildPlace
from ._shared import Stored


class local:
    """Roles in this process and its children.

    engines  {number, cpus, gpus}: processes with the model and the agent loop; 0 (the default): the trainer's process samples itself
    envs     {number, cpus, concurrency}: processes with environments; 0 (the default): environments live beside the model
    trainer  {number, cpus, gpus}: several share one model (shard), as with torchrun; 0 (the default): it is the process that you started

    Nothing is reserved: `cpus` are the torch threads of a process. Whole `gpus` go to one engine each; below 1, several engines share one.
    """

    def __init__(self, *, engines: dict[str, Any] | None = None, envs: dict[str, Any] | None = None, trainer: dict[str, Any] | None = None) -> None:
        self.engines, self.envs = section(Engines, engines, "cluster.engines"), section(Envs, envs, "cluster.envs")
        self.trainer = section(Trainer, trainer, "cluster.trainer")
        if self.trainer.number == 1:
            raise ConfigError("cluster.trainer.number is 1; on one machine it is 0 (the process that you started) or the number that share the model")
        self._children: list[ChildPlace] = []
        self._stored: list[Stored] = []

    def connect(self) -> None:
        """Get ready to start children."""
        # One process reads the libraries, which takes seconds, and the children are copies of it: a lost one is replaced at once.
        self._context, self._key = multiprocessing.get_context("forkserver"), secrets.token_bytes(16)
        self._context.set_forkserver_preload(["agentgym.trainers.cluster._engine"])

    @staticmethod
    def host() -> str:
        """Return this machine's address, as its own processes know it."""
        return "127.0.0.1"

    def open(self, name: str, *, trainers: bool = False) -> None:
        """Check that there are as many GPUs as the engines, or trainers, ask for."""
        self.connect()
        devices(self.trainer if trainers else self.engines, _gpus())

    def place(self, name: str, kind: str, index: int, make: Callable[..., Any], *args: Any, restart: bool) -> ChildPlace:
        """Start a child process."""
        env = {}
        if kind == "engine" or (kind == "trainer" and self.trainer.gpus):
            env["CUDA_VISIBLE_DEVICES"] = devices(self.engines if kind == "engine" else self.trainer, _gpus())[index]
        child = ChildPlace(self._context, self._key, name, env, make, args, restart=restart)
        self._children = [c for c in self._children if not c.ended] + [child]
        return child

    def put(self, value: Any) -> Stored:
        """Write a value into shared memory."""
        self._stored.append(Stored(value))
        return self._stored[-1]

    def free(self, handle: Stored) -> None:
        """Give the memory back; processes that have it mapped keep it until they let go."""
        if handle in self._stored:
            self._stored.remove(handle)
            handle.unlink()

    def close(self) -> None:
        """End the children and give all memory back."""
        for child in self._children:
            child.close()
        self._children = []
        for handle in list(self._stored):
            self.free(handle)


def _gpus() -> int:
    import torch  # environment workers do without

    return torch.cuda.device_count()


def devices(engines: Engines | Trainer, there: int) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES of each engine, or trainer: the last GPUs of the machine, since one trainer beside engines takes the first.

    Raises ConfigError when there are too few.
    """
    each, name = engines.gpus, "cluster.engines" if isinstance(engines, Engines) else "cluster.trainer"
    if not engines.number or not each:
        return [""] * engines.number
    if each > 1 and each != int(each):
        raise ConfigError(f"{name}.gpus is {each}; it is a whole number, or below 1")
    needed = engines.number * int(each) if each >= 1 else -(-engines.number // int(1 / each))
    if needed > there:
        raise ConfigError(
            f"{name} asks for {needed} GPU(s) ({engines.number} of them with {each:g} each), this machine shows {there}: lower {name}.number or gpus"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(i) for i in range(there)]
    mine = names[there - needed :]
    if each < 1:
        return [mine[i // int(1 / each)] for i in range(engines.number)]
    return [",".join(mine[i * int(each) : (i + 1) * int(each)]) for i in range(engines.number)]
