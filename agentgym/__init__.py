"""agentgym: a gym of multi-turn agent environments with an integrated RL trainer for LLM agents."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register as _gymnasium_register

__version__ = "0.1.0"

_LAZY = {
    "TextEnv": "env",
    "ToolEnv": "tool_env",
    "Tool": "tools",
    "ToolResult": "tools",
    "tool": "tools",
    "CallError": "toolcall",
    "mcp": "mcp_client",
    "EnvError": "errors",
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
    from .errors import EnvError
    from .mcp_client import mcp
    from .tool_env import ToolEnv
    from .toolcall import CallError
    from .tools import Tool, ToolResult, tool
    from .types import Completion, Message, Sampling, Status, Step, Task, Trajectory

__all__ = [
    "CallError", "Completion", "EnvError", "Message", "Sampling", "Status", "Step", "Task", "TextEnv", "Tool", "ToolEnv", "ToolResult",
    "Trajectory", "check_env", "make", "mcp", "register", "tool",
]  # fmt: skip


# Gymnasium id → (our name, where the class is). Strings, so that nothing is imported before an environment is made.
GYMNASIUM_IDS = {
    "agentgym/ALFWorld-v0": ("alfworld", "agentgym.envs.alfworld:alfworld"),
    "agentgym/SearchQA-v0": ("searchqa", "agentgym.envs.searchqa:searchqa"),
    "agentgym/SWE-v0": ("swe", "agentgym.envs.swe:swe"),
    "agentgym/WebShop-v0": ("webshop", "agentgym.envs.webshop:webshop"),
    "agentgym/Toy-v0": ("toy", "agentgym.envs.toy:toy"),
}
for _id, (_name, _where) in GYMNASIUM_IDS.items():
    _gymnasium_register(_id, entry_point=_where)


def _register_third_parties() -> None:
    """Give the environments of other packages (entry points `agentgym.env`) Gymnasium ids too; a broken package is reported when it is used."""
    homes = {e.value for e in importlib.metadata.entry_points(group="agentgym.env")} - {"agentgym.envs"}
    if homes:
        from .registry import places

        for home in sorted(homes):
            for name, where in places(home).items():
                _gymnasium_register(f"agentgym/{name}-v0", entry_point=where)


_register_third_parties()


def __getattr__(name: str) -> Any:  # PEP 562: `agentgym --help` and plug-in listing must not pay for gymnasium and numpy
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module 'agentgym' has no attribute {name!r}")
