"""Ray actors, on this machine or on many (needs the extra `ray`)."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from agentgym.errors import AgentGymError, ConfigError, LostError, PolicyError

from ._place import Engines, Envs, Host, Trainer, fail, section, settle


class ray:
    """Roles as Ray actors.

    engines          {number, cpus, gpus}: actors with the model and the agent loop; 0 (the default): the trainer's process samples itself
    envs             {number, cpus, concurrency}: actors with environments; 0 (the default): environments live beside the model
    trainer          {number, cpus, gpus}: 1 puts the trainer into an actor too; more share one model (shard), as with torchrun; 0 (the default):
                     it is the process that you started
    strategy         how engines and workers are spread over machines; Ray's words for placement groups
    address          of a running cluster, or "auto"; "" = the one that this process is connected to, else a Ray of the run's own, on this machine
    object_store_mb  of a Ray of the run's own; 0 = Ray's default, a third of the memory
    patience         seconds to wait for the resources
    runtime_env      for the actors, as Ray takes it: working_dir, pip, env_vars …

    A Ray of the run's own counts at least as many CPUs as the roles ask for: on one machine it is the system that shares them out.
    """

    def __init__(
        self,
        *,
        engines: dict[str, Any] | None = None,
        envs: dict[str, Any] | None = None,
        trainer: dict[str, Any] | None = None,
        strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK",
        address: str = "",
        object_store_mb: int = 0,
        patience: float = 60.0,
        runtime_env: dict[str, Any] | None = None,
    ) -> None:
        self.engines, self.envs = section(Engines, engines, "cluster.engines"), section(Envs, envs, "cluster.envs")
        self.trainer = section(Trainer, trainer, "cluster.trainer")
        if object_store_mb and object_store_mb < 80:
            raise ConfigError(f"cluster.object_store_mb is {object_store_mb}; Ray needs at least 80")
        if not patience > 0:
            raise ConfigError(f"cluster.patience is {patience}; it is above 0")
        self._strategy, self._address, self._store, self._patience = strategy, address, object_store_mb, patience
        self._runtime_env = runtime_env
        self._group: Any = None
        self._mine = False  # whether this process started Ray, and ends it
        self._places: list[ActorPlace] = []

    @staticmethod
    def host() -> str:
        """Return the address of this machine that Ray knows."""
        from ray.util import get_node_ip_address

        return str(get_node_ip_address())

    def open(self, name: str, *, trainers: bool = False) -> None:
        """Connect to Ray, or start one, and reserve what the roles ask for.

        Raises ConfigError where Ray is not installed, or does not have what is asked for within `patience` seconds.
        """
        self.connect()
        bundles = [self._bundle("engine")] * self.engines.number + [self._bundle("envs")] * self.envs.number
        bundles = [self._bundle("trainer")] * self.trainer.number if trainers else bundles
        if not bundles or self._group is not None:
            return
        from ray.util import placement_group

        self._group = placement_group(bundles, strategy=self._strategy, name=f"agentgym {name}")
        if not self._group.wait(self._patience):
            group, self._group = self._group, None
            self._remove(group)
            raise ConfigError(
                f"cluster.ray asks for {_sum(bundles)} (strategy {self._strategy}), which could not be had within {self._patience:g} s. "
                f"The cluster has {_resources(self._ray.cluster_resources())}, free: {_resources(self._ray.available_resources())}. Lower "
                "cluster.engines, cluster.envs or cluster.trainer (number, cpus, gpus), take another strategy, or add machines"
            )

    def place(self, name: str, kind: str, index: int, make: Callable[..., Any], *args: Any, restart: bool) -> ActorPlace:
        """Start an actor in its bundle."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        options: dict[str, Any] = self._resources(kind)
        if self._group is not None:
            bundle = self.engines.number + index if kind == "envs" else index
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        if self._runtime_env:
            options["runtime_env"] = self._runtime_env
        # Calls are never repeated by Ray itself: what was lost is decided by who knows what it means.
        actor = self._ray.remote(_Actor).options(
            name=None, max_restarts=-1 if restart else 0, max_task_retries=0, max_concurrency=100_000, **options
        )  # fmt: skip
        place = ActorPlace(actor.remote(make, *args), name)
        self._places.append(place)
        return place

    def put(self, value: Any) -> Any:
        """Put a value into the object store."""
        return self._ray.put(value)

    def free(self, handle: Any) -> None:
        """Nothing to do: the object store forgets what no call and no variable holds any longer."""

    def close(self) -> None:
        """End the actors, give the resources back, and end the Ray that this run started."""
        places, self._places = self._places, []
        for place in places:
            place.close()
        group, self._group = self._group, None
        if group is not None:
            self._remove(group)
        if self._mine:
            self._mine = False
            self._ray.shutdown()

    # -- Ray --------------------------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to Ray, or start one. Raises ConfigError."""
        try:
            import ray as library
        except ImportError:
            raise ConfigError("cluster: ray needs the package ray: pip install 'agentgym[ray]'; one machine does without (cluster: local)") from None
        self._ray = library
        if library.is_initialized():
            return
        how: dict[str, Any] = {"log_to_driver": self.trainer.number > 0, "include_dashboard": False, "configure_logging": False}
        if self._address or os.environ.get("RAY_ADDRESS"):
            how = {"address": self._address or None, "log_to_driver": how["log_to_driver"], "configure_logging": False}
        else:
            how |= {"num_cpus": max(os.cpu_count() or 1, math.ceil(self._cpus()))}
            how |= {"object_store_memory": self._store << 20} if self._store else {}
        try:
            library.init(**how)
        except Exception as e:  # ConnectionError, RuntimeError, ValueError …
            raise ConfigError(f"cluster: ray: no connection to {self._address or 'a Ray of this machine'} ({type(e).__name__}: {e})") from e
        self._mine = True

    def _cpus(self) -> float:
        e, w, t = self.engines, self.envs, self.trainer
        return e.number * e.cpus + w.number * w.cpus + t.number * t.cpus

    def _resources(self, kind: str) -> dict[str, float]:
        if kind == "envs":
            return {"num_cpus": self.envs.cpus, "num_gpus": 0.0}
        s: Engines | Trainer = self.engines if kind == "engine" else self.trainer
        return {"num_cpus": s.cpus, "num_gpus": s.gpus}

    def _bundle(self, kind: str) -> dict[str, float]:
        r = self._resources(kind)
        # An empty bundle is refused by Ray.
        return {n: x for n, x in (("CPU", r["num_cpus"]), ("GPU", r["num_gpus"])) if x} or {"CPU": 0.001}

    def _remove(self, group: Any) -> None:
        from ray.util import remove_placement_group

        if self._ray.is_initialized():
            remove_placement_group(group)


class ActorPlace:
    """An actor with one role. It travels inside Ray only."""

    def __init__(self, actor: Any, name: str) -> None:
        self.name, self._actor, self._reason = name, actor, ""

    def __reduce__(self) -> Any:
        return ActorPlace, (self._actor, self.name)

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the role."""
        future: Future[Any] = Future()
        try:
            self._actor.call.remote(method, *args).future().add_done_callback(functools.partial(self._done, future))
        except Exception as e:  # Ray has ended, or the actor was never there
            fail(future, self._error(e))
        return future

    def kill(self, reason: str) -> None:
        """End the actor at once."""
        import ray as library

        self._reason = reason
        if library.is_initialized():
            library.kill(self._actor, no_restart=True)

    def close(self) -> None:
        """Let the role close what it holds, then end the actor."""
        try:
            self.call("close").result(_CLOSING)
        except Exception:  # it hangs, or is gone already
            pass
        self.kill("was told to close")

    def _done(self, future: Future[Any], answered: Future[Any]) -> None:
        error = answered.exception()
        if error is None:
            settle(future, answered.result())
        else:
            fail(future, self._error(error))

    def _error(self, error: BaseException) -> AgentGymError:
        from ray import exceptions

        if isinstance(error, exceptions.RayTaskError) and not isinstance(getattr(error, "cause", None), exceptions.RayError):
            return PolicyError(f"{self.name}: {error}")
        if "creation task" in str(error):  # of Ray's own making: the package is not there, for instance
            return PolicyError(f"{self.name} could not begin; is agentgym installed on every machine? {error}")
        return LostError(f"{self.name} {(self._reason and f'{self._reason} and was ended') or f'was lost ({_first(error)})'}")


_CLOSING = 15.0  # seconds in which a role may close what it holds


class _Actor:
    """What runs in an actor. All its methods run on one event loop."""

    def __init__(self, make: Callable[..., Any], *args: Any) -> None:
        self._host = Host(make, args)

    async def call(self, method: str, *args: Any) -> tuple[str, Any, str]:
        return await self._host.call(method, args)


def _first(error: BaseException) -> str:
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _sum(bundles: list[dict[str, float]]) -> str:
    return _resources({n: sum(b.get(n, 0.0) for b in bundles) for n in ("CPU", "GPU")})


def _resources(found: dict[str, float]) -> str:
    return ", ".join(f"{found.get(n, 0.0):g} {n}" for n in ("CPU", "GPU"))
