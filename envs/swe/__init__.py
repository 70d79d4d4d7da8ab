"""SWE: repair real repositories in a sandbox; hidden tests decide. `swe` is the environment's class, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .env import SWEEnv as swe

__all__ = ["swe"]


def __getattr__(name: str) -> Any:
    if name == "swe":
        from .env import SWEEnv

        return SWEEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
