"""Trainers that the cluster places: one with the whole model, or several that share one (ranks.py), each told what torchrun would tell it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

from agentgym import registry
from agentgym.config import Config
from agentgym.errors import ConfigError, LostError

from ..ranks import launched
from ._open import backend_of
from ._place import Backend, Place

_GRACE = 5.0  # seconds in which the others may say what happened to them, once one has failed


class TrainerRole:
    """A trainer in a process that the cluster placed; it places engines and workers from there.

    local  environments that were registered at run time;  host: returns an address of the machine that it is called on
    """

    def __init__(self, local: bytes, host: Callable[[], str]) -> None:
        registry.add_pickled(local)
        self._host = host

    def meeting(self) -> tuple[str, int]:
        """Return where the others find this one: an address of this machine, and a port that is free now."""
        with socket.create_server((self._host(), 0)) as free:
            return self._host(), free.getsockname()[1]

    def train(self, config: Config, resume: bool, env: dict[str, str]) -> dict[str, Any]:
        """Run all stages and return the summary; `env`: who the others are."""
        from ..train import train_here

        os.environ.update(env)
        return train_here(config, resume=resume)


def trained_elsewhere(config: Config, *, resume: bool) -> dict[str, Any] | None:
    """Train where the cluster places the trainers and return the summary; None where that is this process.

    The run folder has to be one that all machines see. Raises ConfigError for what does not fit together; LostError where one of the processes was
    lost: the others are ended, since they would wait for it.
    """
    backend = backend_of(config)
    n = backend.trainer.number
    if not n or (resume and launched()):  # resumed by torchrun, whatever started it
        return None
    check(config, backend)
    try:
        if n == 1:
            backend.connect()
        else:
            backend.open(config.run.dir, trainers=True)
            config.run.threads = config.run.threads or max(1, int(backend.trainer.cpus))
        local = registry.local_name("env", config.env.name)
        places = [backend.place(f"trainer {i}", "trainer", i, TrainerRole, local, backend.host, restart=False) for i in range(n)]
        return _summary([p.call("train", config, resume, env) for p, env in (zip(*_met(places), strict=True) if n > 1 else [(places[0], {})])])
    except (LostError, KeyboardInterrupt) as e:
        e.add_note(f"Go on from the last checkpoint with: agentgym resume {config.run.dir}")
        raise
    finally:
        backend.close()


def check(config: Config, backend: Backend) -> None:
    """Raise ConfigError where several trainers do not fit to the rest of the configuration."""
    n = backend.trainer.number
    if n and launched():
        raise ConfigError(f"cluster.trainer.number={n} starts processes of its own: run it without torchrun, or leave cluster.trainer out")
    if n < 2:
        return
    if backend.engines.number or backend.envs.number:
        raise ConfigError(
            f"cluster.trainer.number={n}: the processes share one model and each plays itself, so cluster.engines and cluster.envs would serve "
            "nobody: leave them out, or have one trainer"
        )
    if config.shard.ranks not in (0, n):
        raise ConfigError(f"shard.ranks={config.shard.ranks}, but cluster.trainer.number={n} process(es) are to be started: leave shard.ranks out")


def _met(places: Sequence[Place]) -> tuple[list[Place], list[dict[str, str]]]:
    """Return the places by rank, those of one machine side by side, and the environment variables of each."""
    host, port = places[0].call("meeting").result()
    machines: list[str] = [p.call("where").result()[0] for p in places]
    order = sorted(range(len(places)), key=lambda i: machines.index(machines[i]))
    return [places[i] for i in order], environments([machines[i] for i in order], host, port)


def environments(machines: Sequence[str], host: str, port: int) -> list[dict[str, str]]:
    """Return what torchrun would set for each rank; `machines`: where each is.

    LOCAL_WORLD_SIZE is that of the fullest machine for all: as many turns as that are taken everywhere (Ranks.in_turn).
    """
    most = max(machines.count(m) for m in machines)
    meeting = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "WORLD_SIZE": str(len(machines)), "LOCAL_WORLD_SIZE": str(most)}
    return [{**meeting, "RANK": str(i), "LOCAL_RANK": str(machines[:i].count(m))} for i, m in enumerate(machines)]


def _summary(running: Sequence[Future[dict[str, Any]]]) -> dict[str, Any]:
    """Return what the first of them found when all are done; raise what one of them raised, rather the cause than what it did to the others."""
    if any(f.exception() for f in wait(running, return_when=FIRST_EXCEPTION).done):
        wait(running, timeout=_GRACE)
        errors = [e for f in running if f.done() and (e := f.exception())]
        raise next((e for e in errors if isinstance(e, LostError)), errors[0])
    return running[0].result()
