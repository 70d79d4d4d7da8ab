"""Optional columns of a batch that cost forward passes: only those that a method names are computed."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError, did_you_mean
from agentgym.types import Trajectory

from .batch import Batch
from .forward import MicroBatch, device_of, even, joined, live, micro_batches, mine

if TYPE_CHECKING:
    from .crew import Crew


@dataclass
class Round:
    """What a teacher or critic may look at beside the batch.

    trajectories  those of the batch, in its order: broken ones are left out
    update        number of the update in its stage, from 0
    temperature   that of the sampler
    budget        tokens of one forward pass, padding included
    share         whether what segments begin with in common is computed once
    crew          processes that compute a share of the built-in streams
    """

    trajectories: Sequence[Trajectory] = ()
    update: int = 0
    temperature: float = 1.0
    budget: int = 8192
    share: bool = False
    crew: Crew | None = None


class Filler(Protocol):
    """What makes streams: a teacher or a critic."""

    provides: tuple[str, ...]

    def fill(self, batch: Batch, round: Round) -> dict[str, Tensor]:
        """Return the streams that it provides, each [N] or [N, K]."""
        ...


class Critic(Filler, Protocol):
    """A filler that learns what states are worth."""

    def learn(self, batch: Batch, round: Round, generator: torch.Generator) -> dict[str, float]:
        """Learn from a round, after credit and before the policy's update; return metrics. One that objectives train has only metrics to give."""
        ...

    def warming(self, update: int) -> bool:
        """Return whether the policy's update of this number is left out: the critic does not know enough yet."""
        ...


BUILT_IN = {
    "logp_train": "log-probability under the trainer's weights before the update",
    "entropy": "entropy in nats under the trainer's weights before the update",
    "ref_logp": "log-probability under the frozen reference",
}


def frozen(model: nn.Module) -> nn.Module:
    """Return a model as it is now, for scoring only; weights that nobody trains are shared with it."""
    spread = getattr(model, "spread", None)
    if spread is not None:
        return spread.frozen()  # type: ignore[no-any-return]
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, shared).eval().requires_grad_(False)


class Reference:
    """The model as it is now, frozen: the same weights with their adapters off when there are adapters (no memory), else a copy.

    own  the copy, None if there is none; given, it is taken instead of a new one
    """

    def __init__(self, model: nn.Module, own: nn.Module | None = None) -> None:
        self._model: Any = model
        self.own = own if own is not None or hasattr(model, "disable_adapter") else frozen(model)

    def model(self) -> AbstractContextManager[nn.Module]:
        """Hold the model as it was, for scoring."""
        return contextlib.nullcontext(self.own) if self.own is not None else self._without_adapters()

    @contextlib.contextmanager
    def _without_adapters(self) -> Iterator[nn.Module]:
        with self._model.disable_adapter():
            yield self._model

    def score(self, batch: Batch, **how: Any) -> Tensor:
        """Return [N] ref_logp; `how` as in the function `score`."""
        with self.model() as model:
            return score(model, batch, reference=True, **how)[0]


def available(fillers: Iterable[Filler] = ()) -> set[str]:
    """Return the names of all streams that can be filled: the built-in ones and those of the given teachers and critics."""
    return set(BUILT_IN) | {n for f in fillers for n in f.provides}


def check_read(needs: set[str], fillers: Mapping[str, Filler]) -> None:
    """Raise ConfigError for a teacher or critic whose streams nobody reads: it would do nothing."""
    for name, filler in fillers.items():
        if not needs & set(filler.provides):
            raise ConfigError(
                f"{name} provides {', '.join(filler.provides)}, which neither credit, weights nor objectives read: choose a credit or an objective "
                f"that names one of them, or leave {name} out. They read: {', '.join(sorted(needs)) or 'no streams'}"
            )


def fill(
    batch: Batch,
    names: Iterable[str],
    model: nn.Module,
    reference: Reference | None,
    round: Round,
    fillers: Mapping[str, Filler] | None = None,
) -> None:
    """Fill `batch.streams` with the columns `names`, and `batch.timings` with the seconds that each took; both in place.

    A filler (name → teacher or critic) runs when one of the streams that it provides is asked for, and may replace a built-in one. `logp_train`
    and `entropy` share a forward pass. Raises ConfigError on a name that nobody fills, and on `ref_logp` without a reference.
    """
    fillers = fillers or {}
    wanted, known = set(names), available(fillers.values())
    for name in sorted(wanted - known):
        raise ConfigError(f"there is no stream {name!r}.{did_you_mean(name, known)} Streams: {', '.join(sorted(known))}")
    theirs = {n for f in fillers.values() for n in f.provides}
    own = sorted({"logp_train", "entropy"} & wanted - theirs)
    how: dict[str, Any] = {"temperature": round.temperature, "budget": round.budget, "share": round.share, "crew": round.crew}
    if own:
        with timed(batch, f"stream/{'+'.join(own)}"):
            logp, entropy = score(model, batch, entropy="entropy" in own, **how)
            found = {"logp_train": logp, "entropy": entropy}
            batch.streams |= {n: found[n] for n in own}
    if "ref_logp" in wanted - theirs:
        if reference is None:
            raise ConfigError("a method needs 'ref_logp', but the run keeps no reference model")
        with timed(batch, "stream/ref_logp"):
            batch.streams["ref_logp"] = reference.score(batch, **how)
    for name, filler in fillers.items():
        if wanted & set(filler.provides):
            with timed(batch, f"stream/{name}"):
                found = filler.fill(batch, round)
            for stream, x in found.items():
                if stream not in filler.provides or len(x) != batch.n_tokens:
                    expected = f"expected {', '.join(filler.provides)}, one row per token: {batch.n_tokens}"
                    raise ValueError(f"{name} gave the stream {stream!r} with {len(x)} rows; {expected}")
            batch.streams |= found


@contextlib.contextmanager
def timed(batch: Batch, name: str) -> Iterator[None]:
    """Note in `batch.timings` how long something took."""
    start = time.perf_counter()
    yield
    batch.timings[name] = time.perf_counter() - start


@torch.no_grad()
def score(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float,
    budget: int,
    entropy: bool = False,
    share: bool = False,
    crew: Crew | None = None,
    reference: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (log-probability, entropy in nats) [N] of the written tokens under `model`; 0 on what was only read, entropy 0 if not asked for.

    budget     padded tokens of one forward pass
    share      whether what segments begin with in common is computed once
    crew       processes that compute a share each; with `reference`, under the model that was lent to them
    """
    device = device_of(model)
    there = batch.to(device)
    logp, ent = torch.zeros(2, batch.n_tokens, device=device)
    work = micro_batches(there, budget if crew is None else even(budget, batch.n_tokens, crew.n), share=share)
    options: dict[str, Any] = {"temperature": temperature, "entropy": entropy}
    found: Iterable[tuple[MicroBatch, dict[str, Tensor]]]
    if crew is None:
        found = ((rows, live(model, rows, there.sampled[rows.index], **options)) for rows in mine(model, work, lambda r: r.cells))
    else:
        found = crew.score(model, list(work), there.sampled, reference=reference, **options)
    for rows, columns in found:
        logp[rows.index] = columns["logp"]
        if entropy:
            ent[rows.index] = columns["entropy"]
    logp, ent = joined(model, logp, ent)
    return logp.to(batch.token.device), ent.to(batch.token.device)
