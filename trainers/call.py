"""A plug-in's positional parameters name the columns it reads: this hands them over, and checks beforehand that they exist."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from agentgym import registry
from agentgym.errors import ConfigError, did_you_mean
from agentgym.registry import columns_of

from .batch import STEP, TOKEN, TRAJ, Batch

# Columns of a packed batch; `advantage` and `weight` exist once credit and the weight plug-ins have run.
PACKED = tuple(n for n in TOKEN + STEP + TRAJ if n not in ("advantage", "weight"))
# What only credit may ask for beside it.
FOR_CREDIT = ("state_text",)
# What the update computes while it runs, with gradients: only objectives see these.
LIVE = {
    "logp": "log-probability of the token, [N]",
    "entropy": "entropy in nats of the distribution that the token is drawn from, [N]",
    "logq": "log-probabilities of the tokens `teacher_ids` in its place, [N, K]",
    "value_live": "the autoregressive critic's value of the context that ends with the token, [N]",
}


def columns(batch: Batch) -> dict[str, Any]:
    """Return every column that the batch holds, streams included, under its name."""
    found = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    return {n: x for n, x in found.items() if isinstance(x, Tensor)} | {"state_text": batch.state_text} | batch.streams


def call(fn: Callable[..., Any], source: Batch | Mapping[str, Tensor], **extra: Any) -> Any:
    """Call a plug-in with the columns that its positional parameters name, taken from `extra` first, then from `source`.

    A parameter with a default may be absent. `extra["state"]` goes to a method with memory (keyword parameter `state`).
    Raises ConfigError when a column is missing.
    """
    have: dict[str, Any] = {**(columns(source) if isinstance(source, Batch) else source), **extra}
    check([fn], have)
    parameters = inspect.signature(fn).parameters
    names = [n for n in columns_of(fn) if n in have]
    if "state" in extra and "state" in parameters:
        names.append("state")
    return fn(**{n: have[n] for n in names})


def needs(fns: Iterable[Callable[..., Any]]) -> set[str]:
    """Return the columns that the plug-ins read, optional ones left out."""
    return {n for fn in fns for n in _required(fn)}


def check(fns: Iterable[Callable[..., Any]], provided: Iterable[str]) -> None:
    """Raise ConfigError when a plug-in names a column that nothing provides. Call it before any work starts."""
    provided = set(provided)
    for fn in fns:
        for column in _required(fn):
            if column not in provided:
                why = " (some completions came without log-probabilities)" if column == "logp_old" else ""
                hint = _who_provides(column) or did_you_mean(column, provided)
                raise ConfigError(f"{name_of(fn)} needs {column!r}, which nothing provides{why}.{hint} Provided: {', '.join(sorted(provided))}.")


def _who_provides(column: str) -> str:
    """Return which teachers and critics would provide a column, as a hint."""
    found = {k: [n for n in registry.names(k) if column in registry.find(k, n).provides] for k in ("critic", "teacher")}
    if found["critic"]:
        return f" A critic does: {' or '.join(f'critic={n}' for n in found['critic'])}."
    return f" A teacher does: {' or '.join(f'teachers.{n}={{}}' for n in found['teacher'])}." if found["teacher"] else ""


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a plug-in, options bound or not."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def takes_state(fn: Callable[..., Any]) -> bool:
    """Return whether a plug-in has memory: a keyword parameter `state`."""
    return "state" in inspect.signature(fn).parameters


def _required(fn: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(fn).parameters
    return [n for n in columns_of(fn) if parameters[n].default is inspect.Parameter.empty]
