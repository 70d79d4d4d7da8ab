"""Optional columns of a batch that cost forward passes: only those that a method names are computed."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from agentgym.config import Config
from agentgym.errors import ConfigError, did_you_mean

from .batch import Batch
from .forward import logprobs, rows_of

Provider = Callable[[Batch], Tensor]
BUILT_IN = {
    "logp_train": "log-probability under the trainer's weights before the update",
    "entropy": "entropy in nats under the trainer's weights before the update",
    "ref_logp": "log-probability under the frozen reference",
}


class Reference:
    """The model as it is now, frozen: the same weights with their adapters off when there are adapters (no memory), else a copy."""

    def __init__(self, model: nn.Module) -> None:
        self._off: Callable[[], AbstractContextManager[Any]] = getattr(model, "disable_adapter", contextlib.nullcontext)
        own = hasattr(model, "disable_adapter")
        self.model = model if own else copy.deepcopy(model).eval().requires_grad_(False)

    def score(self, batch: Batch, *, temperature: float, budget: int) -> Tensor:
        """Return [N] ref_logp."""
        with self._off():
            return score(self.model, batch, temperature=temperature, budget=budget)[0]


def available(providers: Iterable[str] = ()) -> set[str]:
    """Return the names of all streams that can be filled: the built-in ones and the given providers."""
    return set(BUILT_IN) | set(providers)


def fill(
    batch: Batch,
    names: Iterable[str],
    model: nn.Module,
    reference: Reference | None,
    config: Config,
    providers: Mapping[str, Provider] | None = None,
) -> None:
    """Fill `batch.streams` with the columns `names`, and `batch.timings` with the seconds that each took; both in place.

    `providers` makes further streams (teachers, critics): batch → [N] or [N, K]; one of them may replace a built-in name. `logp_train` and
    `entropy` share a forward pass. Raises ConfigError on a name that nobody fills, and on `ref_logp` without a reference.
    """
    temperature, budget = config.rollout.temperature, config.update.tokens_per_microbatch
    providers = dict(providers or {})
    wanted = set(names)
    known = available(providers)
    for name in sorted(wanted - known):
        raise ConfigError(f"there is no stream {name!r}.{did_you_mean(name, known)} Streams: {', '.join(sorted(known))}")
    if "ref_logp" in wanted and "ref_logp" not in providers:
        if reference is None:
            raise ConfigError("a method needs 'ref_logp', but the run keeps no reference model")
        providers["ref_logp"] = lambda b: reference.score(b, temperature=temperature, budget=budget)
    own = sorted({"logp_train", "entropy"} & wanted - set(providers))
    if own:
        start = time.perf_counter()
        logp, entropy = score(model, batch, temperature=temperature, budget=budget, entropy="entropy" in own)
        found = {"logp_train": logp, "entropy": entropy}
        batch.streams |= {n: found[n] for n in own}
        batch.timings["+".join(own)] = time.perf_counter() - start
    for name in sorted(wanted - set(own)):
        start = time.perf_counter()
        batch.streams[name] = providers[name](batch)
        batch.timings[name] = time.perf_counter() - start
        if len(batch.streams[name]) != batch.n_tokens:
            raise ValueError(f"stream {name!r} has {len(batch.streams[name])} rows, expected one per token: {batch.n_tokens}")


@torch.no_grad()
def score(model: nn.Module, batch: Batch, *, temperature: float, budget: int, entropy: bool = False) -> tuple[Tensor, Tensor]:
    """Return (log-probability, entropy in nats) [N] of every token under `model`; 0 on the first of each segment, entropy 0 if not asked for.

    `budget`: padded tokens of one forward pass.
    """
    device = next(model.parameters()).device
    there = batch.to(device)
    logp, ent = torch.zeros(2, batch.n_tokens, device=device)
    for rows in rows_of(there, budget):
        x, y = logprobs(model, rows.ids, rows.inside, temperature=temperature, entropy=entropy)
        logp[rows.index] = rows.flat(x)
        if y is not None:
            ent[rows.index] = rows.flat(y)
    return logp.to(batch.token.device), ent.to(batch.token.device)
