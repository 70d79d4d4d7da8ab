"""ALFWorld: household tasks in text. `alfworld` is the environment's class, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .env import ALFWorldEnv as alfworld

__all__ = ["alfworld"]


def __getattr__(name: str) -> Any:
    if name == "alfworld":
        from .env import ALFWorldEnv

        return ALFWorldEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
