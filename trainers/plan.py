"""`agentgym run … --dry-run`: what a run would be made of and need, and what about it cannot work. No weights are loaded, no environment is made."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import yaml
from torch import nn

from agentgym import registry
from agentgym.config import Config, Shard, stages, to_layer
from agentgym.errors import AgentGymError, ConfigError

from . import memory, setup, shard, streams
from .ahead import goes_ahead
from .cluster import _launch, _open
from .cluster._open import backend_of
from .cluster._place import Backend
from .ranks import launched
from .update import Updater

_GB = 1e9  # a GB here is 10^9 bytes


@dataclass
class Plan:
    """Lines to read, what cannot work, and what works but should be known."""

    lines: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peak: float = 0.0  # most bytes of one device that any stage needs

    def text(self) -> str:
        """Return all of it as the command prints it."""
        found = [*(f"note: {x}" for x in self.notes), *(f"REFUSED: {x}" for x in self.refused)]
        return "\n".join([*self.lines, "", *found, "This would not run." if self.refused else "This would run."])


def plan(config: Config) -> Plan:
    """Work out the plan of a run."""
    out = Plan([yaml.safe_dump(_shown(config), sort_keys=False, default_flow_style=None, width=140).rstrip(), ""])
    backend = _try(out, lambda: backend_of(config))
    if backend is not None:
        _placed(config, backend, out)
    ranks = config.shard.ranks or launched()
    _try(out, lambda: _device(config, ranks, out, backend is not None and backend.trainer.number > 1))
    if ranks or config.shard != Shard():
        _try(out, lambda: shard.check(config))
    model = _try(out, lambda: memory.skeleton(config.model))
    if model is not None:
        out.lines.append(_model_line(config, model))
    for name, c in stages(config).items():
        out.lines += ["", f"stage {name}: {c.update.count} updates"]
        out.lines += [f"  {kind:<11} {text}" for kind, text in _parts(c)]
        _try(out, lambda c=c: _bind(c))
        _sizes(out, name, c, ranks)
        if model is not None:
            _stage_memory(out, name, c, model, ranks)
    if config.run.device.startswith("cuda") and not torch.cuda.is_available():
        count = f"{ranks} GPUs" if ranks > 1 else "a GPU"
        memory_of = f" with {out.peak / 0.9 / _GB:.0f} GB or more" + (" each" if ranks > 1 else "") if out.peak else ""
        if backend is not None and backend.trainer.number and config.cluster.name != "local":
            out.notes.append(f"the trainers need {count}{memory_of}; the machines of the cluster were not looked at")
        else:
            out.refused.append(f"run.device={config.run.device}: this machine has no GPU that torch sees. Needed: {count}{memory_of}")
    return out


def _try(out: Plan, work: Any) -> Any:
    """Return work(), or None with the reason noted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except AgentGymError as e:
        if str(e) not in out.refused:
            out.refused.append(str(e))
        return None


def _shown(config: Config) -> dict[str, Any]:
    return {k: v for k, v in to_layer(config).items() if v not in (None, {}, [])}


def _placed(config: Config, backend: Backend, out: Plan) -> None:
    """Say what the cluster starts, and refuse what does not fit together."""
    n, e, w = backend.trainer, backend.engines, backend.envs
    _try(out, lambda: _launch.check(config, backend))
    if n.number > 1:
        config.shard.ranks = config.shard.ranks or n.number
    _try(out, lambda: _open.check(config, backend, alone=not config.shard.ranks))
    if not (n.number or e.number or w.number):
        return
    each = [f"{x.number} {name} ({x.cpus:g} CPUs, {x.gpus:g} GPUs each)" for x, name in ((n, "trainer processes"), (e, "engines")) if x.number]
    each += [f"{w.number} environment workers ({w.cpus:g} CPUs and {w.concurrency} environments each)"] if w.number else []
    out.lines += [f"cluster {config.cluster.name} starts {', '.join(each)}"]
    if e.number:
        out.notes.append("the memory while playing is that of each engine here, which has the weights too (and the reference has not)")


def _device(config: Config, ranks: int, out: Plan, started: bool) -> None:
    """Note what the devices are, and refuse what is not there."""
    formats = {str(config.model.options.get("dtype", "float32")), config.shard.compute}
    if config.run.device == "cpu" and formats - {"float32"}:
        out.notes.append("bfloat16 on a CPU without instructions for it is 8 to 18 times slower than float32; use it on GPUs only")
    if not ranks and config.shard != Shard():
        raise ConfigError("shard.* does nothing where the model is not sharded: set shard.ranks (1 needs no torchrun)")
    if ranks > 1:
        out.notes.append("the cluster starts all processes" if started else f"start it with {_start(config.shard, ranks)}")
    if not config.run.device.startswith("cuda"):
        return
    here, wanted = torch.cuda.device_count(), config.shard.group or max(ranks, 1)
    if 0 < here < wanted:
        out.notes.append(f"this machine has {here} GPUs, the run wants {max(ranks, 1)}: on several machines, start torchrun on each of them")


def _start(s: Shard, ranks: int) -> str:
    if s.group and s.group < ranks:
        machines = ranks // s.group
        meeting = "--rdzv-backend c10d --rdzv-endpoint HOST:29500"
        return f"torchrun --nnodes {machines} --nproc-per-node {s.group} {meeting} -m agentgym run …, on each machine"
    return f"torchrun --nproc-per-node {ranks} -m agentgym run …"


def _model_line(config: Config, model: nn.Module) -> str:
    n, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad or every) for every in (True, False))
    source = "sizes known to agentgym, its files were not looked at" if config.model.name in memory.KNOWN else "sizes from its configuration"
    return f"model {config.model.name}: {n / 1e6:,.2f} M parameters, {trained / 1e6:,.2f} M of them trained ({source})"


def _parts(c: Config) -> Iterator[tuple[str, str]]:
    """Yield (kind, its plug-ins with their options) of a stage."""
    for kind in ("env", "context", "action", "policy", "sampler", "explore", "critic", "credit", "reduce", "optimizer"):
        section = getattr(c, kind)
        if section is not None:
            yield kind, _named(section.name, section.options)
    for kind in ("rewards", "teachers", "weights", "objectives"):
        for key, p in getattr(c, kind).items():
            yield kind, _named(p.name if p.name == key else f"{key} ({p.name})", p.options)


def _named(name: str, options: dict[str, Any]) -> str:
    return " ".join([name, *(f"{k}={v}" for k, v in options.items())])


def _bind(c: Config) -> None:
    """Bind every plug-in and check every column, as a run does before it begins."""
    registry.find("env", c.env.name)
    setup.check_alone(c, goes_ahead(c) or c.run.workers > 1)
    for kind in ("context", "action", "policy", "sampler", "explore"):
        section = getattr(c, kind)
        registry.bind(kind, section.name, section.options)
    setup.bind_map("reward", c.rewards)
    setup.bind_map("logger", c.loggers)
    updater, credit, fillers = _updater(c)
    updater.check(credit, fillers.values())
    streams.check_read(updater.needs(credit, fillers.values()), fillers)


def _updater(c: Config) -> tuple[Updater, Any, dict[str, Any]]:
    setup.bind_map("teacher", c.teachers)
    fillers = {n: registry.find("teacher", p.name) for n, p in c.teachers.items()}
    if c.critic is not None:
        registry.bind("critic", c.critic.name, c.critic.options)
        fillers["critic"] = registry.find("critic", c.critic.name)
    credit = registry.bind("credit", c.credit.name, c.credit.options) if c.credit else None
    return Updater.from_config(c, nn.Linear(2, 2)), credit, fillers


def _sizes(out: Plan, name: str, c: Config, ranks: int) -> None:
    """Note how much one update plays and reads, and refuse sizes that leave processes without work or memory without a bound."""
    r, limit = c.rollout, int(c.policy.options.get("max_context", 0) or 0)
    episodes = r.tasks * r.group_size
    line = f"  one update  {r.tasks} groups of {r.group_size}: {episodes} episodes"
    if limit:
        line += f" of at most {limit:,} tokens in one context: {episodes * limit / 1e6:.2f} M tokens at most where nothing is forgotten"
    out.lines.append(line)
    if ranks > r.tasks:
        out.refused.append(
            f"stage {name}: {ranks} processes share {r.tasks} groups, so {ranks - r.tasks} of them would play nothing. Set rollout.tasks to "
            f"{ranks} or a multiple of it, or shard.ranks to {r.tasks} or less"
        )
    elif ranks and r.tasks % ranks:
        out.notes.append(f"stage {name}: {r.tasks} groups over {ranks} processes: some play one more than others, who wait")
    if limit > c.update.tokens_per_microbatch:
        out.refused.append(
            f"stage {name}: update.tokens_per_microbatch={c.update.tokens_per_microbatch} is less than the longest context, "
            f"policy.max_context={limit}: such a segment would need more memory than planned. Raise the first, or lower the second"
        )
    if not limit and registry.needs_model(c.policy.name):
        out.notes.append(
            f"stage {name}: policy.max_context is not set, so a context may grow to the model's own limit; one longer than "
            "update.tokens_per_microbatch is computed all the same, alone, and needs more memory than is said here"
        )


def _stage_memory(out: Plan, name: str, c: Config, model: nn.Module, ranks: int) -> None:
    """Append what the stage needs on each device, item by item."""
    try:
        updater, credit, fillers = _updater(c)
        needs = updater.needs(credit, fillers.values())
    except AgentGymError:
        return  # already refused
    limit = int(c.policy.options.get("max_context", 0) or 0)
    context = limit or min(int(getattr(model.config, "max_position_embeddings", 0) or 0) or 1 << 20, c.update.tokens_per_microbatch)  # type: ignore[union-attr]
    found = _try(out, lambda: memory.estimate(c, model, ranks=ranks, reference="ref_logp" in needs, context=context))
    if found is None:
        return
    what = f"on each of {ranks} devices" if ranks > 1 else "on the device"
    out.peak = max(out.peak, found.peak())
    unit, name_of_unit = (_GB, "GB") if found.peak() >= _GB else (_GB / 1000, "MB")
    out.lines.append(f"  memory {what}, {name_of_unit}: {found.peak() / unit:.2f} at most")
    for when, items in (("always", found.always), ("in an update", found.update), ("while playing", found.play)):
        parts = ", ".join(f"{k} {v / unit:.2f}" for k, v in items.items()) or "nothing"
        out.lines.append(f"    {when:<13} {sum(items.values()) / unit:8.2f}  {parts}")
    if c.teachers or c.critic is not None:
        out.notes.append(f"stage {name}: teachers and critics are not counted; one that keeps a copy of the policy needs as much as its weights")
    if c.run.device.startswith("cuda") and torch.cuda.is_available():
        there = torch.cuda.get_device_properties(0).total_memory
        if found.peak() > 0.9 * there:
            out.refused.append(f"stage {name}: {found.peak() / _GB:.1f} GB of the device's {there / _GB:.1f} GB leave no room for the allocator")
