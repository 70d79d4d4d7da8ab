"""YAML files and `a.b=value` overrides → checked dataclasses. Unknown keys and wrong types are refused; no DictConfig travels.

Layers are merged left to right. A plug-in section is a name (`credit: gigpo`) or a map with its options (`{name: gigpo, step_weight: 0.5}`);
naming another plug-in drops the options of the first. Plural sections are maps; `objectives.kl=null` drops an entry, and an entry `"*": null`
everything that earlier layers put there. A stage may begin with a recipe of its own (`stages.warm.recipe=imitate`).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .config_files import find_file, read_override, read_yaml
from .errors import ConfigError, did_you_mean
from .registry import fit


@dataclass
class Plugin:
    """A plug-in by name, with its options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Splits:
    """Which splits are trained on and held out."""

    train: str = "train"
    eval: str = "valid_unseen"


@dataclass
class Rollout:
    """How episodes are collected for one update."""

    tasks: int = 16  # tasks (groups) per update
    group_size: int = 8  # episodes per task
    concurrency: int = 128  # episodes in flight
    max_tokens: int = 32  # tokens per completion
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: list[str] = field(default_factory=list)
    step_timeout: float = 60.0  # seconds for one reset or step of a blocking environment
    invalid_penalty: float = 0.0  # taken from the advantage of a step whose action was not accepted
    drop_uniform: bool = False  # dynamic sampling (DAPO): drop groups whose outcomes are all the same, draw others
    max_draws: int = 4  # dynamic sampling: at most this many times `tasks` are drawn for one update
    max_staleness: int = 0  # versions that a token may be old when it is learnt from; above 0 other processes play while this one learns


@dataclass
class Update:
    """How a batch becomes optimiser steps."""

    count: int = 100  # updates in this stage
    passes: int = 1  # over each batch
    minibatches: int = 1  # optimiser steps per pass; whole trajectories, however many steps they have
    tokens_per_microbatch: int = 16_384  # padded tokens in memory at a time; never changes the gradient
    shared_prefix: str = "auto"  # auto | always | never: compute what sequences begin with in common once; never changes the gradient
    clip_norm: float = 1.0
    warmup: int = 0  # optimiser steps of linear warm-up
    decay: str = "constant"  # constant | linear | cosine, over the stage


@dataclass
class Eval:
    """Held-out evaluation inside a run."""

    every: int = 0  # updates between evaluations; 0 = only before, after the warm start, and at the end
    tasks: int | None = None  # tasks for the evaluations in between (the first and the final one always use the whole split)
    k: int = 1  # episodes per task
    temperature: float = 0.4
    top_p: float = 1.0
    top_k: int = 0
    show: int = 3  # episodes printed at the end


@dataclass
class Checkpoint:
    """What is kept on disk."""

    every: int = 1  # updates between checkpoints: a kill loses what came after the last one
    keep_last: int = 2  # the best by held-out success and the final one are always kept


@dataclass
class Run:
    """Where a run lives and what makes it repeatable."""

    dir: str = ""  # default: runs/<task file>-<date>
    seed: int = 0
    workers: int = 1  # processes that share the model: each plays, scores and differentiates a share (CPU only); with rollout.max_staleness one of
    # them learns and the others play, one at least
    threads: int = 0  # torch threads of each process; 0 = torch's default, or 1 where there are several workers
    device: str = "cpu"
    minutes: float = 0.0  # stop a stage's updates when the run has taken this long; 0 = no limit
    trajectories_every: int = 10  # updates between stored batches of trajectories; 0 = none


@dataclass
class Shard:
    """How one model is spread over the processes that torchrun started (FSDP2); trainers/SCALING.md says what each of these buys."""

    ranks: int = 0  # processes; 0 = as many as torchrun started, and without torchrun a whole model in this process. 1 needs no torchrun
    group: int = 0  # processes that share one copy of the weights; 0 = all. Fewer: one copy per group, such as the devices of a machine
    compute: str = "float32"  # format of forward and backward passes; weights, gradients and optimizer state stay as they are (model.dtype)
    offload: bool = False  # weights, gradients and optimizer state lie in the host's memory between passes (only with a GPU)


def _plugin(name: str, **options: Any) -> Any:
    return field(default_factory=lambda: Plugin(name, options))


@dataclass
class Config:
    """One stage of a run, or the base that its stages override."""

    env: Plugin = _plugin("alfworld")
    splits: Splits = field(default_factory=Splits)
    context: Plugin = _plugin("full")
    action: Plugin = _plugin("plain")
    rewards: dict[str, Plugin] = field(default_factory=dict)
    discount: float = 0.95
    model: Plugin = _plugin("tiny")
    policy: Plugin = _plugin("hf")
    sampler: Plugin = _plugin("uniform")
    explore: Plugin = _plugin("independent")
    teachers: dict[str, Plugin] = field(default_factory=dict)
    critic: Plugin | None = None
    credit: Plugin | None = None
    weights: dict[str, Plugin] = field(default_factory=dict)
    objectives: dict[str, Plugin] = field(default_factory=dict)
    reduce: Plugin = _plugin("token_mean")
    optimizer: Plugin = _plugin("adamw")
    rollout: Rollout = field(default_factory=Rollout)
    update: Update = field(default_factory=Update)
    eval: Eval = field(default_factory=Eval)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    run: Run = field(default_factory=Run)
    cluster: Plugin = _plugin("local")  # where engines and environments live; it changes no number but by rounding
    shard: Shard = field(default_factory=Shard)
    loggers: dict[str, Plugin] = field(default_factory=lambda: {"console": Plugin("console"), "jsonl": Plugin("jsonl")})
    recipe: str | None = None
    stages: dict[str, Any] = field(default_factory=dict)


ALL = "*"  # in a plural section: null here drops what earlier layers put there
OF_THE_RUN = {"env", "splits", "model", "run", "shard", "recipe", "stages", "checkpoint", "loggers", "cluster"}
STAGE_KEYS = frozenset(f.name for f in dataclasses.fields(Config)) - OF_THE_RUN

# The least value that makes sense, where not every number does.
LEAST: dict[str, dict[str, float]] = {
    "rollout": {
        "tasks": 1,
        "group_size": 1,
        "concurrency": 1,
        "max_tokens": 1,
        "temperature": 0,
        "top_p": 0,
        "top_k": 0,
        "step_timeout": 0,
        "max_draws": 1,
        "max_staleness": 0,
    },
    "update": {"count": 0, "passes": 1, "minibatches": 1, "tokens_per_microbatch": 1, "clip_norm": 0, "warmup": 0},
    "eval": {"every": 0, "tasks": 1, "k": 1, "temperature": 0, "top_p": 0, "top_k": 0, "show": 0},
    "checkpoint": {"every": 1, "keep_last": 1},
    "run": {"workers": 1, "threads": 0, "minutes": 0, "trajectories_every": 0},
    "shard": {"ranks": 0, "group": 0},
}


@functools.cache
def _hints(section: type = Config) -> dict[str, Any]:
    return typing.get_type_hints(section)


def _is_plugin(key: str) -> bool:
    hint = _hints()[key]
    return hint is Plugin or (Plugin in typing.get_args(hint) and typing.get_origin(hint) is not dict)


def _is_plugin_map(key: str) -> bool:
    return typing.get_origin(_hints()[key]) is dict and key != "stages"


def normalise(layer: Any, source: str, *, stage: bool = False) -> dict[str, Any]:
    """Check the keys of one layer and bring shorthands (`credit: gigpo`) to their long form. Raises ConfigError naming `source`."""
    if layer is None:
        return {}
    if not isinstance(layer, Mapping):
        raise ConfigError(f"{source}: a configuration is a map of keys, got {type(layer).__name__}")
    allowed = STAGE_KEYS if stage else {f.name for f in dataclasses.fields(Config)}
    out: dict[str, Any] = {}
    for key, value in layer.items():
        if key not in allowed:
            if stage and key in {f.name for f in dataclasses.fields(Config)}:
                raise ConfigError(f"{source}: {key!r} cannot differ between stages; set it once at the top")
            raise ConfigError(f"{source}: unknown key {key!r}.{did_you_mean(str(key), allowed)} Allowed: {', '.join(sorted(allowed))}")
        where = f"{source}: {key}"
        if value is None and (key == "stages" or _is_plugin_map(key)):
            out[key] = None  # drops the whole map
        elif key == "stages":
            out[key] = {n: None if s is None else _stage(s, f"{where}.{n}") for n, s in _map(value, where).items()}
        elif _is_plugin(key):
            out[key] = _long(value, where)
        elif _is_plugin_map(key):
            out[key] = {n: _long(p, f"{where}.{n}", key=n) for n, p in _map(value, where).items()}
            if out[key].get(ALL) is not None:
                raise ConfigError(f"{where}: '*' stands for all entries of earlier layers and can only be null, which drops them")
        else:
            out[key] = _section(key, value, where)
    return out


def _stage(layer: Any, source: str) -> dict[str, Any]:
    """Normalise a stage's layer, its own recipe first."""
    own = {k: v for k, v in layer.items() if k != "recipe"} if isinstance(layer, Mapping) else layer
    recipe = layer.get("recipe") if isinstance(layer, Mapping) else None
    if recipe is None:
        return normalise(own, source, stage=True)
    path = find_file(fit(recipe, str, f"{source}.recipe"), "recipes")
    return merge(normalise(read_yaml(path), str(path), stage=True), normalise(own, source, stage=True))


def _map(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a map, got {value!r}")
    return {str(k): v for k, v in value.items()}


def _long(value: Any, where: str, key: str | None = None) -> Any:
    """Return a plug-in as {"name": …, options…}; a map without a name only changes options.

    `key`: the plug-in's place in a plural section, which is its name when none is given.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return {"name": value, "__replace__": True}
    out = _map(value, where)
    if out.get("name") == key:
        out.pop("name", None)  # said twice: the same as not said
    return out


def _section(key: str, value: Any, where: str) -> Any:
    hint = _hints()[key]
    if not dataclasses.is_dataclass(hint):
        return value
    allowed = [f.name for f in dataclasses.fields(hint)]
    for k in _map(value, where):
        if k not in allowed:
            raise ConfigError(f"{where}: unknown key {k!r}.{did_you_mean(k, allowed)} Allowed: {', '.join(allowed)}")
    return _map(value, where)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two normalised layers; a plug-in of another name replaces the first with its options."""
    out = copy.deepcopy(dict(base))
    for key, value in over.items():
        if key == "__replace__":
            continue
        old = out.get(key)
        if isinstance(value, Mapping) and ALL in value:
            old = None
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            renamed = "name" in value and value["name"] != old.get("name")
            out[key] = merge({}, value) if renamed or value.get("__replace__") else merge(old, value)
        else:
            out[key] = merge({}, value) if isinstance(value, Mapping) else copy.deepcopy(value)
    return out


def build(merged: Mapping[str, Any]) -> Config:
    """Turn a merged layer into a Config. Raises ConfigError on wrong types."""
    hints = _hints()
    out: dict[str, Any] = {}
    for key, value in merged.items():
        if value is None and (key == "stages" or _is_plugin_map(key)):
            out[key] = {}
        elif key == "stages":
            out[key] = {n: s for n, s in value.items() if s is not None}
        elif _is_plugin(key):
            out[key] = _to_plugin(value, key, default=getattr(_default(key), "name", None))
            if out[key] is None and hints[key] is Plugin:
                raise ConfigError(f"{key} cannot be null: a run needs one. Name a plug-in ({key}=NAME), or leave the key out")
        elif _is_plugin_map(key):
            out[key] = {n: _to_plugin(p, f"{key}.{n}", default=n) for n, p in value.items() if p is not None}
        elif dataclasses.is_dataclass(hints[key]):
            section = _hints(hints[key])
            out[key] = hints[key](**{k: fit(v, section[k], f"{key}.{k}") for k, v in value.items()})  # type: ignore[operator]
            _check_least(key, out[key])
        else:
            out[key] = fit(value, hints[key], key)
    return Config(**out)


def _check_least(key: str, section: Any) -> None:
    for name, least in LEAST.get(key, {}).items():
        value = getattr(section, name)
        if value is not None and not value >= least:
            raise ConfigError(f"{key}.{name} is {value}; it is at least {least:g}")


def _to_plugin(value: Any, where: str, *, default: str | None) -> Plugin | None:
    if value is None:
        return None
    options = {k: v for k, v in value.items() if k not in ("name", "__replace__")}
    name = value.get("name") or default
    if not isinstance(name, str):
        raise ConfigError(f"{where}: which one? Give a name ({where}=NAME); got only options {sorted(options)}")
    return Plugin(name, options)


def _default(key: str) -> Any:
    return getattr(Config(), key, None)


def load(files: Sequence[str | Path], overrides: Sequence[str] = ()) -> Config:
    """Merge files and overrides left to right.

    The `recipe` of the first file is its base, unless a later file brings a recipe's own keys (credit, objectives); one given by an override
    goes on top of the files, as if it had been given as the last of them.
    """
    layers = [(read_yaml(f), str(f)) for f in files]
    over = [(read_override(o), f"override {o!r}") for o in overrides]
    another = any(isinstance(layer, Mapping) and layer.keys() & {"credit", "objectives"} for layer, _ in layers[1:])
    own = layers[0][0].get("recipe") if layers and not another and isinstance(layers[0][0], Mapping) else None
    asked = [layer["recipe"] for layer, _ in over if "recipe" in layer]
    recipe = asked[-1] if asked else own
    if recipe is not None:
        path = find_file(fit(recipe, str, "recipe"), "recipes")
        layers.insert(len(layers) if asked else 0, (read_yaml(path), str(path)))
    merged: dict[str, Any] = {}
    for layer, source in layers + over:
        merged = merge(merged, normalise(layer, source))
    return build(merged)


def stages(config: Config) -> dict[str, Config]:
    """Return stage name → complete configuration, in order; a run without stages is one stage named "rl"."""
    if not config.stages:
        return {"rl": config}
    base = to_layer(config)
    base.pop("stages")
    return {name: build(merge(base, over)) for name, over in config.stages.items()}


def to_layer(config: Config) -> dict[str, Any]:
    """Return the configuration as plain data in the form that `build` reads."""
    raw = dataclasses.asdict(config)
    for key in list(raw):
        if _is_plugin(key) and raw[key] is not None:
            raw[key] = {"name": raw[key]["name"], **raw[key]["options"]}
        elif _is_plugin_map(key):
            raw[key] = {n: {"name": p["name"], **p["options"]} for n, p in raw[key].items()}
    return raw


def fingerprint(config: Config) -> str:
    """Return a hash of all that decides a run's numbers (not of where it is written or how it is logged)."""
    raw = to_layer(config)
    for key in ("loggers", "checkpoint", "cluster"):
        raw.pop(key)
    raw["run"] = {k: raw["run"][k] for k in ("seed", "device", "workers", "threads")}
    if raw.pop("shard")["compute"] != Shard.compute:  # how many processes there are changes nothing but rounding
        raw["compute"] = config.shard.compute
    return hashlib.sha256(json.dumps(raw, sort_keys=True, default=str).encode()).hexdigest()[:16]
