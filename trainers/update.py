"""One optimiser step over a batch, blind to the method: coefficients first, then micro-batches whose size cannot change the gradient."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from agentgym import registry
from agentgym.config import Config
from agentgym.errors import ConfigError, did_you_mean

from . import streams
from .batch import TOKEN, Batch
from .call import FOR_CREDIT, LIVE, PACKED, call, check, columns, name_of, takes_state
from .call import needs as columns_needed
from .forward import MicroBatch, device_of, even, live, micro_batches
from .ops import full
from .prefix import shares

if TYPE_CHECKING:
    from .crew import Crew
    from .shard import Sharded
    from .streams import Filler

Objective = tuple[str, Callable[..., Any], float]  # name, function, coefficient
Plan = Sequence[tuple[Tensor, Tensor]]  # per objective: what each token counts, and its coefficient in the loss
Decay = Literal["constant", "linear", "cosine"]
_SUMMED = ("tokens", "seconds", "skipped", "updates")  # metrics that add up over the steps of a round; the others are averaged


class Optimizer(Protocol):
    """What the update asks of an optimizer; every torch.optim.Optimizer has it."""

    param_groups: list[dict[str, Any]]

    def step(self) -> Any: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@dataclass
class Schedule:
    """Learning-rate factor by update: linear warm-up over `warmup` updates, then constant, or a decay to `floor` at update `total`."""

    warmup: int = 0
    decay: str = "constant"
    total: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.decay not in get_args(Decay):
            raise ConfigError(f"there is no decay {self.decay!r}.{did_you_mean(self.decay, get_args(Decay))} Known: {', '.join(get_args(Decay))}")
        if self.decay != "constant" and self.total <= self.warmup:
            raise ConfigError(f"a {self.decay} decay needs more optimiser steps than the warm-up: {self.total} in all, warm-up {self.warmup}")

    def __call__(self, update: int) -> float:
        """Return the factor for the update of this number, counted from 0; the first one is not 0."""
        if update < self.warmup:
            return (update + 1) / self.warmup
        if self.decay == "constant":
            return 1.0
        done = min(1.0, (update - self.warmup) / (self.total - self.warmup))
        left = 1 - done if self.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return self.floor + (1 - self.floor) * left


@dataclass
class Updater:
    """Turns a Batch into optimiser steps.

    objectives            (name, function, coefficient): each gives a loss [N], with metrics [N] or its own token "weight" [N] if it likes
    weights               functions → [N], multiplied together onto the token weight
    reduce                (loss, weight, segment) → scalar, linear in the loss
    clip_norm             largest norm of the whole gradient; None leaves it alone
    tokens_per_microbatch tokens of one forward pass, padding included; a matter of memory and speed only
    share                 whether what segments begin with in common is computed once; a matter of memory and speed only
    temperature           that of the sampler, so that log-probabilities are of the same distribution
    updates               optimiser steps taken; read by `schedule`, a factor on each group's own learning rate
    state                 memory of the objectives that ask for it, by name
    crew, stage           processes that compute a share of each gradient, and under which name they know this stage
    """

    model: nn.Module
    optimizer: Optimizer
    objectives: Sequence[Objective]
    reduce: Callable[..., Tensor]
    weights: Sequence[Callable[..., Tensor]] = ()
    schedule: Callable[[int], float] = field(default_factory=Schedule)
    clip_norm: float | None = 1.0
    tokens_per_microbatch: int = 8192
    share: bool = False
    temperature: float = 1.0
    updates: int = 0
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    crew: Crew | Sharded | None = None
    stage: str = ""

    def __post_init__(self) -> None:
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self._fns = [f for _, f, _ in self.objectives]
        self._live = [set(LIVE) & columns_needed([fn]) for fn in self._fns]
        self._device = device_of(self.model)

    @classmethod
    def from_config(cls, config: Config, model: nn.Module, *, crew: Crew | Sharded | None = None, stage: str = "") -> Updater:
        """Bind the parts that a stage's configuration names. Raises ConfigError when there is no objective."""
        if not config.objectives:
            known = ", ".join(sorted(registry.names("objective")))
            raise ConfigError(f"there is no objective, so nothing to learn from: set one, objectives.NAME={{}}. Known: {known}")
        objectives = []
        for name, p in config.objectives.items():
            options = dict(p.options)
            coefficient = registry.fit(options.pop("coefficient", 1.0), float, f"objectives.{name}.coefficient")
            objectives.append((name, registry.bind("objective", p.name, options), coefficient))
        u = config.update
        # Demonstrations were not drawn from the model, so no temperature of drawing applies to them.
        drawn = registry.needs_model(config.policy.name)
        return cls(
            model,
            registry.bind("optimizer", config.optimizer.name, config.optimizer.options)(model.named_parameters()),
            objectives,
            registry.bind("reduce", config.reduce.name, config.reduce.options),
            weights=[registry.bind("weight", p.name, p.options) for p in config.weights.values()],
            schedule=Schedule(u.warmup, u.decay, u.count * u.passes * u.minibatches),
            clip_norm=u.clip_norm or None,
            tokens_per_microbatch=u.tokens_per_microbatch,
            share=shares(model, u.shared_prefix),
            temperature=config.rollout.temperature if drawn else 1.0,
            crew=crew,
            stage=stage,
        )

    def check(self, credit: Callable[..., Any] | None = None, fillers: Iterable[Filler] = ()) -> None:
        """Raise ConfigError when a part names a column that nothing will provide; `fillers`: the teachers and the critic."""
        have = {*PACKED, *streams.available(fillers)}
        if credit is not None:
            check([credit], {*have, *FOR_CREDIT})
            have.add("advantage")
        check(self.weights, have)
        check(self._fns, {*have, *LIVE, "weight"})
        check([self.reduce], {*have, "loss", "weight"})
        for column in sorted(self._with_live() - have):
            raise ConfigError(f"'logq' is about the tokens in {column!r}, which nothing provides: name a teacher that does (teachers.NAME)")

    def needs(self, credit: Callable[..., Any] | None = None, fillers: Iterable[Filler] = ()) -> set[str]:
        """Return the streams to fill before an update: those that credit, weights or objectives name."""
        before = columns_needed([*([] if credit is None else [credit]), *self.weights])
        return (before | columns_needed(self._fns) - set(LIVE) | self._with_live()) & streams.available(fillers)

    def _with_live(self) -> set[str]:
        """Return the streams that the live columns are about."""
        return {"teacher_ids"} if any("logq" in names for names in self._live) else set()

    def run(self, batch: Batch, *, passes: int = 1, minibatches: int = 1, generator: torch.Generator) -> dict[str, float]:
        """Take passes × minibatches optimiser steps over whole trajectories and return the metrics, averaged over the steps."""
        batch = self.weigh(replace(batch.to(self._device), state_text=[]))  # for credit only; other processes need not get it
        steps = [self.step(batch, part) for _ in range(passes) for part in split(batch, minibatches, generator)]
        return _average(steps)

    def weigh(self, batch: Batch) -> Batch:
        """Return the batch with `weight` [N], the product of the weight plug-ins (1 without any)."""
        weight = torch.ones(batch.n_tokens, device=batch.token.device)
        for fn in self.weights:
            found = call(fn, batch)
            _expect(found, (batch.n_tokens,), f"weight {name_of(fn)}")
            weight = weight * found
        return replace(batch, weight=weight)

    def step(self, batch: Batch, select: Tensor | None = None) -> dict[str, float]:
        """Take one optimiser step over the trajectories `select` (indices; all by default) and return its metrics.

        The gradient is Σ_k coefficient_k · ∂reduce(loss_k)/∂θ. Since reduce is linear, c_n = ∂reduce/∂loss_n is known before any forward
        pass, and each micro-batch adds the gradient of Σ c_n·loss_n: neither its size nor the order of segments matters.
        """
        start = time.perf_counter()
        part = (batch if select is None else batch.select(select)).to(self._device)
        part = self.weigh(part) if part.weight is None else part
        plan = [self._plan(part, part.weight, objective) for objective in self.objectives]
        self.optimizer.zero_grad(set_to_none=True)
        meter = self._gradient(part, list(micro_batches(part, self._budget(part), share=self.share)), plan)
        metrics = meter.metrics() | self._apply()
        computed = meter.cells - meter.padding
        metrics |= {"tokens": float(part.n_tokens), "padding": meter.padding / max(meter.cells, 1), "shared": 1 - computed / max(part.n_tokens, 1)}
        return metrics | {"seconds": time.perf_counter() - start}

    def _budget(self, part: Batch) -> int:
        """Return the tokens of a micro-batch: fewer where a crew would have nothing to deal out evenly."""
        return self.tokens_per_microbatch if self.crew is None else even(self.tokens_per_microbatch, part.n_tokens, self.crew.n)

    def _plan(self, part: Batch, weight: Tensor | None, objective: Objective) -> tuple[Tensor, Tensor]:
        """Return what each token counts in an objective: base [N] (0 or 1, or the objective's own) and c [N] = ∂reduce/∂loss.

        An objective's own weight must not depend on logp: it is asked for here with placeholders, which also finds wrong shapes early.
        """
        name, fn, _ = objective
        blank = torch.zeros(part.n_tokens, device=part.token.device)
        logp = blank if part.logp_old is None else part.logp_old
        with torch.no_grad():
            state = {"state": dict(self.state.get(name, {}))} if takes_state(fn) else {}  # a copy: a rehearsal leaves no memory
            logq = torch.zeros_like(part.streams["teacher_ids"], dtype=torch.float32) if "teacher_ids" in part.streams else blank
            loss, extra = _loss_and_extra(call(fn, part, logp=logp, entropy=blank, logq=logq, value_live=blank, **state))
        _expect(loss, (part.n_tokens,), f"objective {name}")
        base = torch.where(part.scored, extra.get("weight", part.sampled).float(), 0.0)
        loss = torch.zeros_like(blank, requires_grad=True)
        total = call(self.reduce, part, loss=loss, weight=base if weight is None else base * weight)
        (c,) = torch.autograd.grad(total, loss)
        return base, c

    def _gradient(self, part: Batch, work: list[MicroBatch], plan: Plan) -> Meter:
        """Add the gradient of all micro-batches, a share of them computed by each process of the crew."""
        if self.crew is None or any(takes_state(fn) for fn in self._fns):  # memory must not differ between processes
            return self.backward(part, work, plan)
        shares = self.crew.share(work)
        self.crew.start(self.stage, shares, part, plan)
        meter = self.backward(part, shares[0], plan)
        for theirs in self.crew.finish(meter):
            meter.add(theirs)
        return meter

    def backward(self, part: Batch, work: Iterable[MicroBatch], plan: Plan) -> Meter:
        """Add the gradient of some micro-batches and return what was measured on the way."""
        meter = Meter()
        for rows in work:
            self._backward(part, rows, plan, meter)
        return meter

    def _backward(self, part: Batch, rows: MicroBatch, plan: Plan, meter: Meter) -> None:
        """Add the gradient of one micro-batch."""
        found, written = self._forward(part, rows, plan)
        i = rows.index
        have = columns(part)
        token_level = {*TOKEN, *part.streams}
        view = {n: have[n][i] if n in token_level else have[n] for n in have} | {"segment": rows.segment()} | found
        total = found["logp"][:0].sum()  # 0, with a graph: a sharded model needs every backward pass of every process
        for (name, fn, coefficient), (base, c) in zip(self.objectives, plan, strict=True):
            state = {"state": self.state.setdefault(name, {})} if takes_state(fn) else {}
            loss, extra = _loss_and_extra(call(fn, view, **state))
            part_of_loss = (c[i] * loss)[c[i] != 0].sum()  # indexed, not multiplied: 0 · inf on a token that does not count would be nan
            total = total + coefficient * part_of_loss
            meter.add_loss(name, coefficient, part_of_loss)
            meter.add_tokens(name, extra, base[i])
        meter.add_tokens("", {"nll": -found["logp"]} | {n: found[n] for n in ("entropy",) if n in found}, written)
        meter.cells += rows.cells
        meter.padding += rows.padding
        if total.requires_grad:
            total.backward()

    def _forward(self, part: Batch, rows: MicroBatch, plan: Plan) -> tuple[dict[str, Tensor], Tensor]:
        """Return the live columns [M] that the objectives name, where they have a weight, and which tokens were written [M]."""
        i = rows.index
        wanted = written = part.sampled[i] & part.scored[i]
        valued = torch.zeros_like(written)
        for (_, c), names in zip(plan, self._live, strict=True):
            if names & {"logp", "entropy", "logq"}:
                wanted = wanted | (c[i] != 0)
            if "value_live" in names:
                valued = valued | (c[i] != 0)
        every = set().union(*self._live)
        found = live(
            self.model,
            rows,
            wanted,
            temperature=self.temperature,
            entropy="entropy" in every,
            among=part.streams["teacher_ids"][i] if "logq" in every else None,
            valued=valued if "value_live" in every else None,
        )
        return found, written

    def _apply(self) -> dict[str, float]:
        """Clip, check and apply the gradient; one that is not finite is dropped and counted."""
        found = [p for g in self.optimizer.param_groups for p in g["params"] if p.grad is not None]
        norm = float(full(nn.utils.get_total_norm([p.grad for p in found]))) if found else 0.0
        finite = math.isfinite(norm)
        factor = self.schedule(self.updates)
        if finite:
            if self.clip_norm is not None:
                nn.utils.clip_grads_with_norm_(found, self.clip_norm, torch.tensor(norm))
            for group in self.optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
            self.optimizer.step()
            self.updates += 1
        self.optimizer.zero_grad(set_to_none=True)
        lr = self.optimizer.param_groups[0]["initial_lr"] * factor
        return {"grad_norm": norm, "lr": lr, "skipped": float(not finite), "updates": float(finite)}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs beside the model's weights."""
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates, "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates, self.state = state["updates"], state["state"]


def split(batch: Batch, parts: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Shuffle the trajectories and yield them as `parts` lists of indices of nearly equal size (never more lists than trajectories)."""
    order = torch.randperm(batch.n_trajectories, generator=generator)
    yield from order.tensor_split(min(parts, batch.n_trajectories))


class Meter:
    """Sums over the micro-batches of one step."""

    def __init__(self) -> None:
        self.loss: dict[str, float] = defaultdict(float)
        self.sums: dict[str, tuple[float, float]] = {}
        self.owner: dict[str, str] = {}
        self.cells = self.padding = 0

    def add_loss(self, name: str, coefficient: float, loss: Tensor) -> None:
        self.loss[f"loss/{name}"] += float(loss.detach())
        self.loss["loss"] += coefficient * float(loss.detach())

    def add_tokens(self, name: str, found: dict[str, Tensor], base: Tensor) -> None:
        """Add metrics [M], to be averaged over the tokens that count; two objectives with one metric's name get theirs in front."""
        counted = base > 0
        for metric, x in found.items():
            if metric != "weight":
                key = metric if self.owner.setdefault(metric, name) == name else f"{name}/{metric}"
                total, n = self.sums.get(key, (0.0, 0.0))
                self.sums[key] = (total + float(x.detach()[counted].sum()), n + float(counted.sum()))

    def add(self, other: Meter) -> None:
        """Add what another process measured."""
        self.cells += other.cells
        self.padding += other.padding
        for name, loss in other.loss.items():
            self.loss[name] += loss
        for key, (total, n) in other.sums.items():
            mine = self.sums.get(key, (0.0, 0.0))
            self.sums[key] = (mine[0] + total, mine[1] + n)

    def metrics(self) -> dict[str, float]:
        return dict(self.loss) | {k: total / n for k, (total, n) in self.sums.items() if n}


def _loss_and_extra(result: Tensor | tuple[Tensor, dict[str, Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
    return result if isinstance(result, tuple) else (result, {})


def _expect(x: Tensor, shape: tuple[int, ...], who: str) -> None:
    if tuple(x.shape) != shape:
        raise ValueError(f"{who} returned shape {tuple(x.shape)}, expected [N]={shape}: one number per token")


def _average(steps: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return sums of what adds up and means of the rest; a number that is not finite says so through `skipped` and is left out."""
    values: dict[str, list[float]] = defaultdict(list)
    for metrics in steps:
        for k, v in metrics.items():
            values[k].append(v)
    out = {}
    for k, found in values.items():
        finite = [v for v in found if math.isfinite(v)]
        out[k] = sum(finite) if k in _SUMMED else (sum(finite) / len(finite) if finite else math.nan)
    return out
