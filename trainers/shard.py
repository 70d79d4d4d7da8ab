"""One model over several processes: FSDP2 gathers each layer's weights when a pass needs them, and sums the gradients where they belong.

Every process has the whole batch, so the coefficients of the loss are those of the whole update; each computes the micro-batches that it is
dealt, and the gradients are summed, never averaged: how many processes there are changes nothing but rounding. A pass over a sharded model is
something that all do together: whoever has no micro-batch left goes through an empty one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from agentgym import registry
from agentgym.config import Config, Shard, stages
from agentgym.errors import ConfigError, did_you_mean

from .ahead import goes_ahead
from .call import takes_state
from .forward import MicroBatch, Rows, live
from .model import DTYPES, base_model
from .ranks import Ranks
from .setup import model_of

if TYPE_CHECKING:
    from .update import Meter

Work = TypeVar("Work")


class Root(nn.Module):
    """The model as FSDP sees it: whatever is done inside `forward` finds the weights outside of the layers (embedding, norm, head) whole."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[nn.Module], Any]) -> Any:
        """Return work(model)."""
        return work(self.model)


class Sharded:
    """What a model that is spread over processes carries as `model.spread`: who computes what, and how a pass is run."""

    def __init__(self, model: nn.Module, ranks: Ranks, mesh: DeviceMesh, options: Shard) -> None:
        self.ranks, self.n, self.model, self.device, self.mesh = ranks, ranks.n, model, ranks.device, mesh
        precision = MixedPrecisionPolicy(DTYPES[options.compute], torch.float32) if options.compute != "float32" else MixedPrecisionPolicy()
        offload = CPUOffloadPolicy() if options.offload else OffloadPolicy()
        self.root: Any = Root(model)  # fully_shard makes it an FSDPModule too
        for module in [*layers_of(model), self.root]:
            # The outermost one too: weights that stay gathered after a pass without gradients would be old ones after the next update.
            fully_shard(module, mesh=self.mesh, reshard_after_forward=True, mp_policy=precision, offload_policy=offload)
        self.parts: list[Any] = [m for m in self.root.modules() if isinstance(m, FSDPModule)]
        for part in self.parts:
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
        model.spread = self  # type: ignore[assignment]
        ranks.whole = self.whole

    # -- passes -------------------------------------------------------------------------------------------------------------------

    def __call__(self, work: Callable[[nn.Module], Any]) -> Any:
        """Return work(model), run where the weights are gathered as they are needed; all processes have to do it together."""
        return self.root(work)

    def idle(self) -> None:
        """Go through a pass, and its backward pass, without a token."""
        logp = _nothing(self.model, self.device)
        if logp.requires_grad:
            logp.sum().backward()

    def mine(self, work: Iterable[Work], size: Callable[[Work], int]) -> Iterator[Work]:
        """Yield this process's share of the work, then keep the others company."""
        return self.shared(work, size, self.idle)

    def shared(self, work: Iterable[Work], size: Callable[[Work], int], idle: Callable[[], None]) -> Iterator[Work]:
        """Yield this process's share of the work, then call `idle` as often as others have more of it."""
        shares = deal(list(work), self.ranks.n, size)
        own = shares[self.ranks.rank]
        yield from own
        for _ in range(len(shares[0]) - len(own)):
            idle()

    def joined(self, *columns: Tensor) -> tuple[Tensor, ...]:
        """Return columns that every process has filled where it worked, and left 0 elsewhere."""
        for x in columns:
            dist.all_reduce(x, group=None if x.is_cuda else self.ranks.hosts)
        return columns

    # -- gradients: what the update asks of a crew --------------------------------------------------------------------------------

    def share(self, work: Sequence[MicroBatch]) -> list[list[MicroBatch]]:
        """Deal micro-batches out, cut where there are too few; entry 0 is this process's own."""
        shares = deal(even(work, self.ranks.n), self.ranks.n, _cells)
        self._missing = len(shares[0]) - len(shares[self.ranks.rank])
        return [shares[self.ranks.rank]]

    def start(self, stage: str, shares: Sequence[list[MicroBatch]], part: Any, plan: Any) -> None:
        """Do nothing: the others have all they need."""

    def finish(self, meter: Meter) -> list[Meter]:
        """Wait for the others and return what they measured; FSDP has summed the gradients by then."""
        for _ in range(self._missing):
            self.idle()
        return [m for rank, m in enumerate(self.ranks.gather(meter)) if rank != self.ranks.rank]

    # -- files --------------------------------------------------------------------------------------------------------------------

    def save(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write tensors, every process its part, into a folder that all of them see."""
        checkpoint.save(dict(tensors), checkpoint_id=folder, process_group=self.ranks.hosts)

    def load(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        """Read what `save` wrote into tensors of these names, in place, whatever number of processes wrote it."""
        checkpoint.load(dict(tensors), checkpoint_id=folder, process_group=self.ranks.hosts)

    # -- weights ------------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Gather all weights here, in the format of the passes, so that every process can go its own way; nothing may be learnt meanwhile."""
        self.root.set_reshard_after_forward(False)
        for part in self.parts:
            part.unshard()
        try:
            yield
        finally:
            for part in self.parts:
                part.reshard()
            self.root.set_reshard_after_forward(True)

    def frozen(self) -> Frozen:
        """Return the model as it is now, to be kept."""
        return Frozen(self)


class Frozen:
    """A model as it was: its trained weights are kept, as sharded as the model's own, and change places with these for each pass."""

    def __init__(self, sharded: Sharded) -> None:
        self._sharded, self.device, self.config = sharded, sharded.device, getattr(sharded.model, "config", None)
        self._weights = {n: p.detach().clone() for n, p in sharded.model.named_parameters() if p.requires_grad}
        self.joined = sharded.joined
        self.spread = self

    def mine(self, work: Iterable[Work], size: Callable[[Work], int]) -> Iterator[Work]:
        """Yield this process's share of the work, then keep the others company: with the kept weights here too, for a pass gathers those of all."""
        return self._sharded.shared(work, size, self.idle)

    @torch.no_grad()
    def idle(self) -> None:
        """Go through a pass without a token."""
        _nothing(self, self.device)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the kept weights by name."""
        yield from self._weights.items()

    @torch.no_grad()
    def __call__(self, work: Callable[[nn.Module], Any]) -> Any:
        """Return work(model) under the kept weights."""
        self._swap()
        try:
            return self._sharded(work)
        finally:
            self._swap()

    def _swap(self) -> None:
        now = dict(self._sharded.model.named_parameters())
        for name, kept in self._weights.items():
            a, b = local(now[name]).detach(), local(kept)
            before = a.clone()
            a.copy_(b)
            b.copy_(before)


def _nothing(model: Any, device: torch.device) -> Tensor:
    """Return the log-probabilities [0] of no tokens, after a pass over a sharded or frozen model."""
    ids = torch.zeros(1, 1, dtype=torch.int64, device=device)
    nothing = Rows(ids, torch.zeros_like(ids, dtype=torch.bool), ids.new_zeros(0))
    return live(model, nothing, torch.zeros(0, dtype=torch.bool, device=device))["logp"]


def local(x: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return x.to_local() if isinstance(x, DTensor) else x


def deal(work: Sequence[Work], n: int, size: Callable[[Work], int]) -> list[list[Work]]:
    """Deal work out in rounds of n items of similar size, the largest of a round to whoever has least; a lower rank never gets fewer items."""
    shares: list[list[Work]] = [[] for _ in range(n)]
    load = [0] * n
    ordered = sorted(work, key=size, reverse=True)
    for first in range(0, len(ordered), n):
        items = ordered[first : first + n]
        # In the last round the first ones get something: all must know how many passes there are.
        for item, rank in zip(items, sorted(range(len(items)), key=load.__getitem__), strict=True):
            shares[rank].append(item)
            load[rank] += size(item)
    return shares


def even(work: Sequence[MicroBatch], n: int) -> list[MicroBatch]:
    """Cut micro-batches in two, the largest first, until every process gets as many as the others, or only single rows and trees are left."""
    out = sorted(work, key=_cells, reverse=True)
    while len(out) % n:
        i = next((i for i, rows in enumerate(out) if isinstance(rows, Rows) and len(rows.ids) > 1), None)
        if i is None:
            break
        rows = out.pop(i)
        assert isinstance(rows, Rows)
        half = len(rows.ids) // 2
        out = sorted([*out, rows.part(0, half), rows.part(half, len(rows.ids))], key=_cells, reverse=True)
    return out


def _cells(rows: MicroBatch) -> int:
    return rows.cells


def load(config: Config, ranks: Ranks) -> tuple[Any, Any, Sharded]:
    """Return model, tokenizer, and what spreads the model over the processes. Raises ConfigError for what a sharded run cannot do."""
    check(config)
    mesh = _mesh(ranks, config.shard)
    with ranks.in_turn():
        model, tokenizer = model_of(config, "cpu")
        sharded = Sharded(model, ranks, mesh, config.shard)
    with torch.no_grad():
        sharded.idle()  # FSDP finds out at the first pass which module is the outermost
    return model, tokenizer, sharded


def _mesh(ranks: Ranks, options: Shard) -> DeviceMesh:
    group = options.group or ranks.n
    kind = ranks.device.type
    if group == ranks.n:
        return init_device_mesh(kind, (ranks.n,), mesh_dim_names=("shard",))
    return init_device_mesh(kind, (ranks.n // group, group), mesh_dim_names=("copy", "shard"))


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers that are gathered one at a time: those that transformers says must stay in one piece."""
    names = set(getattr(base_model(model), "_no_split_modules", None) or ())
    return [m for m in model.modules() if type(m).__name__ in names]


def check(config: Config) -> None:
    """Raise ConfigError for what a sharded run cannot do."""
    s, run = config.shard, config.run
    if s.compute not in DTYPES:
        raise ConfigError(f"shard.compute={s.compute} is unknown.{did_you_mean(s.compute, DTYPES)} Known: {', '.join(DTYPES)}")
    if s.compute == "float16":
        raise ConfigError("shard.compute=float16 would need its losses scaled, which is not there; use bfloat16 or float32")
    if s.ranks and s.group and s.ranks % s.group:
        raise ConfigError(f"shard.group={s.group} does not divide the {s.ranks} processes: each group holds one copy of the weights")
    if s.offload and run.device == "cpu":
        raise ConfigError("shard.offload moves weights from a GPU to the host's memory; with run.device=cpu they are there already: leave it out")
    if run.workers > 1:
        raise ConfigError(f"run.workers={run.workers} shares a model in one machine's memory; a sharded one has its ranks instead: set run.workers=1")
    for name, c in stages(config).items():
        _check_stage(name, c)


def _check_stage(name: str, c: Config) -> None:
    if goes_ahead(c):
        raise ConfigError(
            f"stage {name}: rollout.max_staleness={c.rollout.max_staleness} lets other processes of one machine play with whole weights, "
            "which a sharded model has not: set it to 0"
        )
    if registry.needs_model(c.policy.name) and not getattr(registry.find("policy", c.policy.name), "shards", False):
        raise ConfigError(f"stage {name}: the policy {c.policy.name} cannot play with a sharded model; {_who('policy')} can")
    kinds = [("teacher", p.name) for p in c.teachers.values()] + ([("critic", c.critic.name)] if c.critic else [])
    for kind, plugin in kinds:
        if not getattr(registry.find(kind, plugin), "shards", False):
            raise ConfigError(f"stage {name}: the {kind} {plugin} cannot work with a sharded model; {_who(kind)} can. Or train in one process")
    for key, p in c.objectives.items():
        if takes_state(registry.find("objective", p.name)):
            raise ConfigError(f"stage {name}: the objective {key} has memory, which would differ between processes: train in one process")


def _who(kind: str) -> str:
    able = [n for n in registry.names(kind) if getattr(registry.find(kind, n), "shards", False)]
    return " or ".join(able) or "none"
