"""agentgym: a gym of multi-turn agent environments with an integrated RL trainer for LLM agents."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register as _gymnasium_register

__version__ = "0.1.0"

_LAZY = {
    "TextEnv": "env",
    "make": "env",
    "register": "env",
    "check_env": "check",
    "Task": "types",
    "Message": "types",
    "Completion": "types",
    "Step": "types",
    "Trajectory": "types",
    "Status": "types",
    "Sampling": "types",
}

if TYPE_CHECKING:
    from .check import check_env
    from .env import TextEnv, make, register
    from .types import Completion, Message, Sampling, Status, Step, Task, Trajectory

__all__ = [
    "Completion", "Message", "Sampling", "Status", "Step", "Task", "TextEnv", "Trajectory", "check_env", "make", "register",
]  # fmt: skip


# Gymnasium id → (our name, where the class is). Strings, so that nothing is imported before an environment is made.
GYMNASIUM_IDS = {
    "agentgym/ALFWorld-v0": ("alfworld", "agentgym.envs.alfworld:alfworld"),
    "agentgym/Toy-v0": ("toy", "agentgym.envs.toy:toy"),
}
for _id, (_name, _where) in GYMNASIUM_IDS.items():
    _gymnasium_register(_id, entry_point=_where)


def __getattr__(name: str) -> Any:  # PEP 562: `agentgym --help` and plug-in listing must not pay for gymnasium and numpy
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module 'agentgym' has no attribute {name!r}")
