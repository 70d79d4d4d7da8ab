"""WebShop: find and buy what an instruction describes. `webshop` is the environment's class, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .env import WebShopEnv as webshop

__all__ = ["webshop"]


def __getattr__(name: str) -> Any:
    if name == "webshop":
        from .env import WebShopEnv

        return WebShopEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
