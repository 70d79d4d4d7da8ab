"""From the configuration to a cluster: what cannot work is refused before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from agentgym import registry
from agentgym.config import Config, stages
from agentgym.errors import ConfigError
from agentgym.types import Task

from .. import setup
from ..ahead import Ahead, goes_ahead
from ._ahead import FleetAhead
from ._fleet import Fleet
from ._place import Backend


def backend_of(config: Config) -> Backend:
    """Return the backend that `cluster` names; nothing is started yet."""
    backend: Backend = registry.bind("cluster", config.cluster.name, config.cluster.options)()
    return backend


def open_fleet(config: Config, model: nn.Module, tokenizer: Any, *, alone: bool, say: Callable[[str], None]) -> Fleet | None:
    """Place engines and environment workers; None where both are in this process.

    alone: one process has the whole model. Raises ConfigError on what does not fit together.
    """
    backend = backend_of(config)
    if not backend.engines.number and not backend.envs.number:
        return None
    check(config, backend, alone=alone)
    backend.open(config.run.dir)
    try:
        return Fleet(backend, config, model, tokenizer, say=say)
    except BaseException:
        backend.close()
        raise


def check(config: Config, backend: Backend, *, alone: bool) -> None:
    """Raise ConfigError where engines and workers do not fit to the rest of the configuration; `alone`: one process has the whole model."""
    if not backend.engines.number and not backend.envs.number:
        return
    if not alone:
        raise ConfigError(
            "cluster.engines and cluster.envs serve one trainer with a whole model; where a model is spread over several processes (shard.ranks, "
            "torchrun) each of them plays itself: leave cluster out"
        )
    if setup.is_alone(config) and backend.engines.number > 1:
        raise ConfigError(
            f"policy {config.policy.name!r} works in one process: set cluster.engines.number to 0 or 1, and give the policy more engines"
        )
    ahead = any(goes_ahead(c) for c in stages(config).values())
    if config.run.workers > 1:
        raise ConfigError(
            f"run.workers={config.run.workers} shares one model in the memory of one machine; with cluster.engines or cluster.envs use run.workers=1"
        )
    if ahead and not backend.engines.number:
        raise ConfigError("rollout.max_staleness above 0 plays in other processes: with cluster.envs it needs cluster.engines.number of at least 1")
    if 0 < backend.envs.number * backend.envs.concurrency < backend.engines.number:
        raise ConfigError(
            f"cluster.envs has room for {backend.envs.number * backend.envs.concurrency} environments in all, too few for "
            f"{backend.engines.number} engines: raise cluster.envs.number or concurrency"
        )


def ahead_of(
    fleet: Fleet | None, config: Config, stage: str, model: Any, tokenizer: Any, take: Callable[[int], Sequence[Task]], *, say: Any
) -> Ahead:
    """Return a stage's asynchronous rollouts: in the engines of a cluster, or in processes that share this one's memory."""
    if fleet is not None and fleet.n:
        return FleetAhead(fleet, config, stage, model, tokenizer, take, say=say)
    return Ahead(config, stage, model, tokenizer, take, say=say)
